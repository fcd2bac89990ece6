// What a compiled program shows the launcher. Both sides are built from this header; DACEML_ABI guards a mismatch.
#pragma once

#include <stdint.h>
#include <daceml_torch.h>  // torch's C functions: see torch_declarations.py

#define DACEML_ABI 9

extern "C" {

// A non-owning torch tensor over memory at `pointer`; kept with a frame and remade only when the pointer moves.
struct daceml_view {
  void* pointer;
  AtenTensorHandle handle;
};

// Runs operator `step` outside generated code, on arrays whose sizes stand one after the other.
// Returns 0, or non-zero after storing a message on the caller's side.
typedef int32_t (*daceml_fallback)(int64_t step, void* const* pointers, const int64_t* sizes);

// Fills `out` with the numbers that torch's default generator draws next: 1 with `probability`, 0 else.
// Returns non-zero where torch has to draw itself.
typedef int32_t (*daceml_draw)(void* out, int64_t element_bytes, int64_t count, double probability);

// Replaces the state of torch's default generator, if it is still `expected`; where `expected` is null, reads it.
// Returns 0, 1 with the present state in `expected` where it is another one, or -1.
typedef int32_t (*daceml_exchange)(void* expected, void* state);

// A number that differs where any byte of the arrays does: fingerprint.cpp.
typedef uint64_t (*daceml_digest)(const void* const* arrays, const int64_t* bytes, int64_t count);

// Begins the all-reduce of a bucket and returns its ticket, or waits for that of a ticket (`waits`) and returns 0.
// Takes gradients from, or puts averages into, `count` dense arrays of one element type, as torch numbers it.
// Returns a negative number after storing a message on the caller's side.
typedef int64_t (*daceml_all_reduce)(int32_t waits, int64_t bucket_or_ticket, void* const* arrays,
                                     const int64_t* elements, int64_t count, int32_t dtype);

// One call. Everything that changes between two calls in flight is here, so that programs are reentrant.
struct daceml_call {
  void* const* inputs;
  void* const* weights;
  AtenTensorHandle* outputs;  // null before the call; the program makes and hands over each
  AtenTensorHandle* held;     // null, or inputs that only the call holds: released after their last reader
  const int64_t* symbols;
  char* workspace;
  daceml_view* views;
  double* step_us;  // null, or where the time of each step is added
  daceml_fallback fallback;
  daceml_draw bernoulli;  // null where torch has to draw itself
  daceml_digest fingerprint;
  daceml_all_reduce all_reduce;  // null where nobody has said how ranks talk to each other
  void* stream;    // of the device, in which everything is enqueued; null on the CPU
  int32_t device;  // its number
  const char* error;  // why `run` returned non-zero
};

// dtype as torch numbers it; a size of -1 is symbolic and checked by `bind_symbols`; null strides are row-major ones.
// A weight of rank -1 is packed: in an order of torch's own, and passed as a handle instead of an address.
struct daceml_tensor {
  int32_t dtype;
  int32_t ndim;
  const int64_t* sizes;
  const int64_t* strides;
};

struct daceml_program {
  int32_t abi;
  int32_t on_cuda;  // whether inputs, weights and outputs lie on a CUDA device, else in the processor's memory
  int32_t inputs, weights, outputs, symbols, views, steps;
  const daceml_tensor* input_specs;
  const daceml_tensor* weight_specs;
  const daceml_tensor* output_specs;
  // Reads the symbols off the inputs' sizes; returns -1, or the index of an input that contradicts another.
  int32_t (*bind_symbols)(const int64_t* const* input_sizes, int64_t* symbols);
  // Sizes of all outputs, one after another.
  void (*output_sizes)(const int64_t* symbols, int64_t* sizes);
  int64_t (*workspace_bytes)(const int64_t* symbols);
  int32_t (*run)(daceml_call* call);
};

}  // extern "C"
