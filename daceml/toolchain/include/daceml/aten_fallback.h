// Operators that run through torch's dispatcher in Python: daceml/runtime/torch_fallback.py.
#pragma once

#include <string.h>

#include <daceml/aten_call.h>

namespace daceml {
namespace aten {

// What is given to an operator, and where its results go; null is a result that nobody wants.
template <int count>
class Operands {
 public:
  void add(AtenTensorHandle tensor) { given_[givens_++] = tensor; }
  void add(Fresh* result) { results_[wanted_++] = result; }
  void add(decltype(nullptr)) { results_[wanted_++] = nullptr; }

  int32_t run(daceml_call* call, const char* text) {
    StableListHandle list = nullptr;
    StringHandle string = nullptr;
    DACEML_TRY(call, torch_new_list_reserve_size(givens_, &list) || torch_new_string_handle(text, strlen(text), &string),
               "there is no memory for a call of torch");
    for (int i = 0; i < givens_; ++i) {
      AtenTensorHandle copy = nullptr;  // the list takes its elements over
      DACEML_TRY(call,
                 aoti_torch_new_tensor_handle(given_[i], &copy) ||
                     torch_list_push_back(list, reinterpret_cast<uint64_t>(copy)),
                 "there is no memory for a call of torch");
    }
    uint64_t stack[2] = {reinterpret_cast<uint64_t>(string), reinterpret_cast<uint64_t>(list)};
    constexpr uint64_t version = (uint64_t{2} << 56) | (uint64_t{10} << 48);
    DACEML_TRY(call, torch_call_dispatcher("daceml::run_torch_operator", "", stack, version),
               "an operator of torch could not be called");
    const auto found = reinterpret_cast<StableListHandle>(stack[0]);
    const int32_t failed = take(call, found);
    torch_delete_list(found);
    return failed;
  }

 private:
  int32_t take(daceml_call* call, StableListHandle found) {
    size_t size = 0;
    DACEML_TRY(call, torch_list_size(found, &size) || size == 0, "an operator of torch failed");
    DACEML_TRY(call, size != static_cast<size_t>(wanted_), "an operator of torch gave another number of results");
    for (int i = 0; i < wanted_; ++i) {
      if (results_[i] == nullptr) continue;
      uint64_t element = 0;
      DACEML_TRY(call, torch_list_get_item(found, i, &element), "a result of torch could not be read");
      if (results_[i]->take(call, reinterpret_cast<AtenTensorHandle>(element))) return 1;
    }
    return 0;
  }

  AtenTensorHandle given_[count] = {};
  Fresh* results_[count] = {};
  int givens_ = 0;
  int wanted_ = 0;
};

template <typename... Arguments>
inline int32_t torch_operator(daceml_call* call, const char* text, Arguments... arguments) {
  Operands<static_cast<int>(sizeof...(Arguments))> operands;
  (operands.add(arguments), ...);
  return operands.run(call, text);
}

}  // namespace aten
}  // namespace daceml
