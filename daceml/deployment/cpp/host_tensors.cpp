// Torch's C functions for the tensors that a program without calls of torch makes: memory with sizes and strides.
//
// A program asks torch for its results through these functions. Linked into the same library, they take torch's
// place, so that whoever runs the program needs nothing of torch.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include <daceml_torch.h>

struct AtenTensorOpaque {
  std::shared_ptr<void> memory;
  int64_t bytes;
  char* data;
  std::vector<int64_t> sizes, strides;
};

namespace {

constexpr int32_t failed = 1;

// Of one element, by torch's number of its type; 0 for types that no program has.
int64_t item_bytes(int32_t dtype) {
  switch (dtype) {
    case 0: case 1: case 11: return 1;
    case 2: case 5: case 15: case 27: return 2;
    case 3: case 6: case 28: return 4;
    case 4: case 7: case 9: case 29: return 8;
    case 10: return 16;
    default: return 0;
  }
}

}  // namespace

extern "C" {

int32_t aoti_torch_device_type_cpu() { return 0; }
int32_t aoti_torch_dtype_uint8() { return 0; }

AOTITorchError aoti_torch_empty_strided(int64_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                                        int32_t, int32_t, AtenTensorHandle* made) {
  int64_t elements = 1;
  for (int64_t d = 0; d < rank; ++d) elements = sizes[d] == 0 ? 0 : elements + (sizes[d] - 1) * strides[d];
  for (int64_t d = 0; d < rank; ++d) elements = sizes[d] == 0 ? 0 : elements;
  const int64_t bytes = elements * item_bytes(dtype);
  const size_t rounded = (static_cast<size_t>(bytes) + 127) / 64 * 64;
  void* memory = std::aligned_alloc(64, rounded);
  if (memory == nullptr || item_bytes(dtype) == 0) {
    std::free(memory);
    return failed;
  }
  *made = new (std::nothrow) AtenTensorOpaque{std::shared_ptr<void>(memory, std::free), bytes,
                                              static_cast<char*>(memory), {sizes, sizes + rank},
                                              {strides, strides + rank}};
  return *made == nullptr ? failed : 0;
}

AOTITorchError aoti_torch__reinterpret_tensor(AtenTensorHandle self, int64_t rank, const int64_t* sizes,
                                              const int64_t* strides, int64_t, AtenTensorHandle* made) {
  *made = new (std::nothrow)
      AtenTensorOpaque{self->memory, self->bytes, self->data, {sizes, sizes + rank}, {strides, strides + rank}};
  return *made == nullptr ? failed : 0;
}

AOTITorchError aoti_torch_delete_tensor_object(AtenTensorHandle tensor) {
  delete tensor;
  return 0;
}

AOTITorchError aoti_torch_get_data_ptr(AtenTensorHandle tensor, void** pointer) {
  *pointer = tensor->data;
  return 0;
}

AOTITorchError aoti_torch_get_storage_size(AtenTensorHandle tensor, int64_t* bytes) {
  *bytes = tensor->bytes;
  return 0;
}

AOTITorchError aoti_torch_get_dim(AtenTensorHandle tensor, int64_t* rank) {
  *rank = static_cast<int64_t>(tensor->sizes.size());
  return 0;
}

AOTITorchError aoti_torch_get_sizes(AtenTensorHandle tensor, int64_t** sizes) {
  *sizes = tensor->sizes.data();
  return 0;
}

AOTITorchError aoti_torch_get_strides(AtenTensorHandle tensor, int64_t** strides) {
  *strides = tensor->strides.data();
  return 0;
}

}  // extern "C"
