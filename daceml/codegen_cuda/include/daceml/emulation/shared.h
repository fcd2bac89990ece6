// Shared memory that notices two threads at one element without a barrier between them, and what nobody has written.
#pragma once

#include <daceml/emulation/threads.h>

#include <type_traits>

namespace daceml::emulation {

// Who used an element, and when.
struct Use {
    std::uint32_t thread = 0;
    Moment moment;
    bool any = false;
};
struct Shadow {
    Use writer, reader;        // the last ones
    bool beside = false;       // another lane of the reader's warp has read at the same moment
    bool other_warps = false;  // has read since the last barrier of the block
};

// An error if this thread reads or writes an element that another one has used, with nothing between them.
void note_read(Shadow& shadow, const char* array, std::size_t index);
void note_write(Shadow& shadow, const char* array, std::size_t index);

// One element: reads and writes are noted.
template <typename T>
class Cell {
public:
    Cell(T* place, Shadow* shadow, const char* array, std::size_t index)
        : place_(place), shadow_(shadow), array_(array), index_(index) {}
    operator T() const {
        note_read(*shadow_, array_, index_);
        return *place_;
    }
    Cell& operator=(const T& value) {
        note_write(*shadow_, array_, index_);
        *place_ = value;
        return *this;
    }
    Cell& operator=(const Cell& other) { return *this = T(other); }
    Cell(const Cell&) = default;
    Cell& operator+=(const T& value) { return *this = T(*this) + value; }

private:
    T* place_;
    Shadow* shadow_;
    const char* array_;
    std::size_t index_;
};

// A shared array as a kernel sees it.
template <typename T>
class Shared {
public:
    Shared(const void* declaration, std::size_t count, const char* name) : count_(count), name_(name) {
        static_assert(std::is_trivially_copyable_v<T>, "shared memory holds plain values");
        void* shadow = nullptr;
        data_ = static_cast<T*>(shared_memory(declaration, count * sizeof(T), count * sizeof(Shadow), &shadow));
        shadow_ = static_cast<Shadow*>(shadow);
    }
    Cell<T> operator[](std::size_t index) const {
        if (index >= count_) fail("shared array %s has %zu elements, and element %zu is used", name_, count_, index);
        return {data_ + index, shadow_ + index, name_, index};
    }

private:
    T* data_;
    Shadow* shadow_;
    std::size_t count_;
    const char* name_;
};

}  // namespace daceml::emulation
