// The functions of <daceml/vector_lanes.h>: every form of them is libmvec's for the widest vectors of this processor,
// of which narrower forms use some lanes. A lane does not depend on its neighbours.
#define DACEML_LANES_SIMD extern "C"
#include <string.h>

#include <daceml/vector_lanes.h>

#ifdef DACEML_HAS_VECTOR_LANES

namespace {

template <typename T, int count>
struct Of {
    typedef T lanes __attribute__((__vector_size__(count * sizeof(T))));
};
template <typename T, int count>
using Lanes = typename Of<T, count>::lanes;

// A vector that repeats a shorter one, and the first lanes of a longer one.
template <typename Wide, typename Narrow>
inline Wide repeated(Narrow x) {
    Wide y;
    for (size_t i = 0; i < sizeof(Wide); i += sizeof(Narrow)) memcpy(reinterpret_cast<char*>(&y) + i, &x, sizeof(x));
    return y;
}
template <typename Narrow, typename Wide>
inline Narrow first(Wide x) {
    Narrow y;
    memcpy(&y, &x, sizeof(y));
    return y;
}

}  // namespace

// Names are those of x86-64's vector function ABI: b, c, d and e stand for SSE, AVX, AVX2 and AVX-512.
#if defined(__AVX512F__)
#define DACEML_WIDEST_DOUBLE(form, name) _ZGVeN8##form##_##name
#define DACEML_WIDEST_FLOAT(form, name) _ZGVeN16##form##_##name
using Doubles = Lanes<double, 8>;
using Floats = Lanes<float, 16>;
#elif defined(__AVX2__)
#define DACEML_WIDEST_DOUBLE(form, name) _ZGVdN4##form##_##name
#define DACEML_WIDEST_FLOAT(form, name) _ZGVdN8##form##_##name
using Doubles = Lanes<double, 4>;
using Floats = Lanes<float, 8>;
#else
#define DACEML_WIDEST_DOUBLE(form, name) _ZGVbN2##form##_##name
#define DACEML_WIDEST_FLOAT(form, name) _ZGVbN4##form##_##name
using Doubles = Lanes<double, 2>;
using Floats = Lanes<float, 4>;
#endif

#define DACEML_ONE(function, symbol, T, Wide) \
    T symbol(T x) noexcept { return first<T>(function(repeated<Wide>(x))); }
#define DACEML_SOME(function, symbol, T, Wide, count)                       \
    Lanes<T, count> symbol(Lanes<T, count> x) {                             \
        return first<Lanes<T, count>>(function(repeated<Wide>(x)));         \
    }
#define DACEML_ONE_OF_TWO(function, symbol, T, Wide)                                            \
    T symbol(T a, T b) noexcept { return first<T>(function(repeated<Wide>(a), repeated<Wide>(b))); }
#define DACEML_SOME_OF_TWO(function, symbol, T, Wide, count)                                    \
    Lanes<T, count> symbol(Lanes<T, count> a, Lanes<T, count> b) {                              \
        return first<Lanes<T, count>>(function(repeated<Wide>(a), repeated<Wide>(b)));          \
    }

#ifdef __AVX__
#define DACEML_AVX(...) __VA_ARGS__
#else
#define DACEML_AVX(...)
#endif
#ifdef __AVX2__
#define DACEML_AVX2(...) __VA_ARGS__
#else
#define DACEML_AVX2(...)
#endif
#ifdef __AVX512F__
#define DACEML_AVX512(...) __VA_ARGS__
#else
#define DACEML_AVX512(...)
#endif

#define DACEML_FORMS(one, some, v, name, function64, function32)                                   \
    one(function64, daceml_##name, double, Doubles)                                                \
    some(function64, _ZGVbN2##v##_daceml_##name, double, Doubles, 2)                               \
    DACEML_AVX(some(function64, _ZGVcN4##v##_daceml_##name, double, Doubles, 4))                   \
    DACEML_AVX2(some(function64, _ZGVdN4##v##_daceml_##name, double, Doubles, 4))                  \
    DACEML_AVX512(some(function64, _ZGVeN8##v##_daceml_##name, double, Doubles, 8))                \
    one(function32, daceml_##name##f, float, Floats)                                               \
    some(function32, _ZGVbN4##v##_daceml_##name##f, float, Floats, 4)                              \
    DACEML_AVX(some(function32, _ZGVcN8##v##_daceml_##name##f, float, Floats, 8))                  \
    DACEML_AVX2(some(function32, _ZGVdN8##v##_daceml_##name##f, float, Floats, 8))                 \
    DACEML_AVX512(some(function32, _ZGVeN16##v##_daceml_##name##f, float, Floats, 16))

#define DACEML_UNARY(name)                                                                         \
    Doubles DACEML_WIDEST_DOUBLE(v, name)(Doubles);                                                \
    Floats DACEML_WIDEST_FLOAT(v, name##f)(Floats);                                                \
    DACEML_FORMS(DACEML_ONE, DACEML_SOME, v, name, DACEML_WIDEST_DOUBLE(v, name),                  \
                 DACEML_WIDEST_FLOAT(v, name##f))

extern "C" {
DACEML_LANES_OF_UNARY(DACEML_UNARY)
Doubles DACEML_WIDEST_DOUBLE(vv, pow)(Doubles, Doubles);
Floats DACEML_WIDEST_FLOAT(vv, powf)(Floats, Floats);
DACEML_FORMS(DACEML_ONE_OF_TWO, DACEML_SOME_OF_TWO, vv, pow, DACEML_WIDEST_DOUBLE(vv, pow),
             DACEML_WIDEST_FLOAT(vv, powf))
}

#endif
