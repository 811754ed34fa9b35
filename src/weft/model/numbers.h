/* Numbers that a loop makes several of at once: powers of e, and chance. */

#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A hash whose every bit depends on all of x (Wellons). */
static inline uint32_t mixed(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    x *= 0x846ca68bU;
    return x ^ (x >> 16);
}

/* e^x to 1e-7, without a branch: 2^n e^r, r by a polynomial (Cephes). What is no number stays none. */
static inline float power(float x)
{
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    float n = x * 1.44269504088896341f + 12582912.0f; /* rounds */
    int32_t bits;
    memcpy(&bits, &n, 4);
    n -= 12582912.0f;
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    uint32_t scale = ((uint32_t)bits + 127) << 23;
    float factor;
    memcpy(&factor, &scale, 4);
    return y * factor;
}

/* 0 or `raised`, by chance: the number `i` of a row that has its own `seed`. */
static inline float chosen(uint32_t seed, int64_t i, uint32_t threshold, float raised)
{
    return mixed(seed + (uint32_t)i * 0x9e3779b9U) >= threshold ? raised : 0.0f;
}
