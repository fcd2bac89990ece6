// Operators that are called by name: arguments in the form that torch's dispatcher takes over.
#pragma once

#include <string.h>

#include <daceml/aten_call.h>

namespace daceml {
namespace aten {

// Arguments of one call, in order, then its results.
class Stack {
 public:
  Stack& tensor(AtenTensorHandle value) { return push(bits(copied(value))); }
  Stack& optional(AtenTensorHandle value) {
    return push(value == nullptr ? 0 : bits(new uint64_t(bits(copied(value)))));
  }
  Stack& none() { return push(0); }
  // A tensor that is none: what operators get for one they do not want, where it is not optional.
  Stack& undefined() {
    AtenTensorHandle made = nullptr;
    failed_ = failed_ || aoti_torch_new_uninitialized_tensor(&made);
    return push(bits(made));
  }
  Stack& integer(int64_t value) { return push(static_cast<uint64_t>(value)); }
  Stack& boolean(bool value) { return push(value ? 1 : 0); }
  Stack& number(double value) {
    uint64_t held = 0;
    memcpy(&held, &value, sizeof(value));
    return push(held);
  }
  // NaN is absent.
  Stack& optional_number(double value) {
    if (value != value) return none();
    uint64_t* const held = new uint64_t;
    memcpy(held, &value, sizeof(value));
    return push(bits(held));
  }
  // A list of ints, or of booleans.
  template <typename T>
  Stack& list(const T* values, int64_t count) {
    StableListHandle made = nullptr;
    failed_ = failed_ || torch_new_list_reserve_size(static_cast<size_t>(count), &made);
    for (int64_t i = 0; i < count && !failed_; ++i) {
      failed_ = torch_list_push_back(made, static_cast<uint64_t>(values[i]));
    }
    return push(bits(made));
  }
  // Non-zero where the operator failed; then there are no results.
  int32_t call(const char* name, const char* overload = "") {
    // lists are of torch 2.10 on; what an older form of them meant does not matter here
    constexpr uint64_t version = (uint64_t{2} << 56) | (uint64_t{10} << 48);
    return failed_ || torch_call_dispatcher(name, overload, held_, version);
  }
  AtenTensorHandle result(int index = 0) const { return reinterpret_cast<AtenTensorHandle>(held_[index]); }

 private:
  template <typename T>
  static uint64_t bits(T* pointer) {
    return reinterpret_cast<uint64_t>(pointer);
  }
  // The dispatcher takes its arguments over: an operand stays its owner's.
  AtenTensorHandle copied(AtenTensorHandle value) {
    AtenTensorHandle made = nullptr;
    failed_ = failed_ || aoti_torch_new_tensor_handle(value, &made);
    return made;
  }
  Stack& push(uint64_t value) {
    held_[count_++] = value;
    return *this;
  }

  uint64_t held_[16] = {};
  int count_ = 0;
  bool failed_ = false;
};

// Hands results over to those who want them, and frees the others; null is a result that nobody wants.
inline int32_t deliver(daceml_call* call, Fresh* const* targets, const AtenTensorHandle* found, int count) {
  int32_t failed = 0;
  for (int i = 0; i < count; ++i) {
    if (targets[i] != nullptr && !failed) {
      failed = targets[i]->take(call, found[i]);
    } else if (found[i] != nullptr) {
      aoti_torch_delete_tensor_object(found[i]);
    }
  }
  return failed;
}

}  // namespace aten
}  // namespace daceml
