// Fresh memory of large arrays in large pages.
#pragma once

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

// The first write to a page has it filled with zeros: for a new array of 64 MiB in pages of 4 KiB that is half of
// the time in which two threads write it. Linux takes pages of 2 MiB where a program asks for them. Advice only:
// memory that is in use already stays as it is, and a system without such pages refuses in vain.
inline void advise_large_pages(void* memory, std::int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr std::uintptr_t page = std::uintptr_t(1) << 21;
  const std::uintptr_t from = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t first = (from + page - 1) / page * page;
  const std::uintptr_t end = (from + static_cast<std::uintptr_t>(bytes)) / page * page;
  if (end > first + page) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#endif
}
