/* Sixteen floats at a time, on any processor: the compiler splits them into the registers that there are. */

#pragma once

#include <stdint.h>
#include <string.h>
#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#define LANE_COUNT 16

typedef float lanes __attribute__((vector_size(LANE_COUNT * sizeof(float)), aligned(4), may_alias));
typedef int32_t flags __attribute__((vector_size(LANE_COUNT * sizeof(float))));
typedef uint16_t half; /* the bits of a number of half precision */

/* The larger of each pair; b where a or b is NaN. */
static inline lanes larger(lanes a, lanes b)
{
#if defined(__AVX512F__)
    return (lanes)_mm512_max_ps((__m512)a, (__m512)b);
#else
    flags above = a > b;
    return (lanes)((above & (flags)a) | (~above & (flags)b));
#endif
}

static inline lanes smaller(lanes a, lanes b)
{
#if defined(__AVX512F__)
    return (lanes)_mm512_min_ps((__m512)a, (__m512)b);
#else
    flags below = a < b;
    return (lanes)((below & (flags)a) | (~below & (flags)b));
#endif
}

/* e^x for −87 ≤ x ≤ 0, to 2e-7: 2ⁿ is made from its bits, 2 to the remainder is a polynomial. */
static inline lanes exponentials(lanes x)
{
    lanes y = x * 1.44269504f;
    flags whole = __builtin_convertvector(y - 0.5f, flags);
    lanes rest = y - __builtin_convertvector(whole, lanes);
    lanes power = (lanes)((whole + 127) << 23);
    return power * (1 + rest * (0.69314718f + rest * (0.24022651f + rest * (0.05550411f +
                    rest * (0.00961813f + rest * (0.00133336f + rest * 0.00015403f))))));
}

/* 1 / (1 + e⁻ˣ) */
static inline lanes logistics(lanes x)
{
    flags sign = x < 0;
    lanes size = (lanes)((flags)x & 0x7fffffff), small = exponentials(larger((lanes){0} - 87.0f, -size));
    lanes share = small / (1 + small), rest = 1 - share;
    return (lanes)((sign & (flags)share) | (~sign & (flags)rest));
}

static inline lanes load_float(const float *x) { return *(const lanes *)x; }

/* Numbers of half precision. */
static inline lanes load_half(const half *x)
{
#if defined(__AVX512F__)
    return (lanes)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)x));
#else
    /* Exponents are 15 − 127 apart; the product also gets numbers below the smallest normal one right. */
    lanes found;
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        int32_t bits = (x[lane] & 0x7fff) << 13;
        float number;
        memcpy(&number, &bits, sizeof number);
        number *= 5.192296858534828e33f; /* 2¹¹² */
        found[lane] = x[lane] & 0x8000 ? -number : number;
    }
    return found;
#endif
}

static inline void store_float(float *place, float x) { *place = x; }

/* Rounded to the nearest, ties to even; what is too large becomes the largest number. */
static inline void store_half(half *place, float x)
{
    x = x > 65504 ? 65504 : x < -65504 ? -65504 : x;
#if defined(__F16C__)
    *place = (half)_cvtss_sh(x, 0);
#else
    uint32_t bits, size, found;
    memcpy(&bits, &x, sizeof bits);
    size = bits & 0x7fffffff;
    if (size > 0x7f800000) {
        found = 0x7e00; /* NaN */
    } else if (size < 0x38800000) { /* below the smallest normal number: adding 0.5 rounds at its last place */
        float sum;
        memcpy(&sum, &size, sizeof sum);
        sum += 0.5f;
        memcpy(&found, &sum, sizeof found);
        found -= 0x3f000000;
    } else {
        found = (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
    }
    *place = (half)(found | (bits >> 16 & 0x8000));
#endif
}
