"""The small header of torch's C functions: what is kept of torch's own."""

from __future__ import annotations

from daceml.config import config
from daceml.toolchain.cache import Cache
from daceml.toolchain.cxx import torch_header
from daceml.toolchain.torch_declarations import declarations

_EXPORTED = '__attribute__((__visibility__("default"))) '


def test_functions_with_types_of_c_are_kept():
    text = f"""
        struct AtenTensorOpaque;
        using AtenTensorHandle = AtenTensorOpaque*;
        using AOTITorchError = int32_t;
        {_EXPORTED}AOTITorchError aoti_torch_get_dim(AtenTensorHandle tensor, int64_t* ret_dim);
        {_EXPORTED}const char*
            torch_string_c_str(const char* text,
              void (*deleter)(void*));
        {_EXPORTED}int32_t aoti_torch_device_type_cpu();
    """
    header = declarations(text).common
    assert "struct AtenTensorOpaque;\nusing AtenTensorHandle = AtenTensorOpaque*;" in header
    assert "AOTITorchError aoti_torch_get_dim(AtenTensorHandle tensor, int64_t* ret_dim);" in header
    assert "int32_t aoti_torch_device_type_cpu();" in header


def test_functions_of_cpp_are_left_out():
    text = f"""
        using AOTITorchError = int32_t;
        {_EXPORTED}AOTITorchError aoti_torch_item_float16(c10::Half* ret);
        {_EXPORTED}AOTITorchError aoti_torch_item(complex value, int32_t other);
        inline int32_t helper(int32_t x) {{ return x; }}
    """
    header = declarations(text).common
    assert "aoti_torch_item" not in header and "helper" not in header


def test_functions_of_devices_have_a_header_of_their_own():
    text = f"""
        struct AtenTensorOpaque;
        using AtenTensorHandle = AtenTensorOpaque*;
        using AOTITorchError = int32_t;
        {_EXPORTED}AOTITorchError aoti_torch_cpu_mm_out(AtenTensorHandle out);
        {_EXPORTED}AOTITorchError aoti_torch_cuda_mm_out(AtenTensorHandle out);
    """
    made = declarations(text)
    assert "cpu_mm_out" in made.common and "cuda_mm_out" not in made.common
    assert "cuda_mm_out" in made.cuda and "cpu_mm_out" not in made.cuda and "using" not in made.cuda


def test_the_installed_torch_has_what_drivers_call():
    """That both sides agree is checked by the compiler: the launcher includes torch's headers as well."""
    folder = torch_header(Cache(config().cache_folder))
    header = (folder / "daceml_torch.h").read_text()
    called = ("call_dispatcher", "cpu_convolution", "cpu_addmm_out", "create_tensor_from_blob_v2")
    for name in (*(f"aoti_torch_{name}" for name in called), "torch_list_push_back", "torch_get_num_threads"):
        assert f" {name}(" in header
    assert "::" not in header
    on_cuda = (folder / "daceml_torch_cuda.h").read_text()
    for name in ("convolution", "addmm_out", "bmm_out", "native_dropout", "index_put"):
        assert f" aoti_torch_cuda_{name}(" in on_cuda
