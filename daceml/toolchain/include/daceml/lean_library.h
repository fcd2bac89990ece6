// libstdc++ without its special functions and conversions of numbers to and from strings.
//
// Generated code uses neither, and gcc instantiates them again for every text that includes <cmath> or <string>, from a
// precompiled header as well: two fifths of the time in which a small kernel or driver compiles. To be included first. A
// library that knows these switches by other names, or not at all, is merely not leaner.
#pragma once

// in full: they are behind the same switches
#include <cstdio>
#include <cstdlib>
#include <cwchar>

#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#undef _GLIBCXX_USE_C99_STDLIB
#undef _GLIBCXX_USE_C99_STDIO
#undef _GLIBCXX_USE_C99_WCHAR
