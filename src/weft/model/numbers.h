/* exp and random dropout factors that compilers can vectorize. */

#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* An integer hash: every bit of the result depends on every bit of x (Wellons). */
static inline uint32_t hash32(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    x *= 0x846ca68bU;
    return x ^ (x >> 16);
}

/* e^x with a relative error of 1e-7, without branches: 2^n e^r, e^r by a polynomial (Cephes). NaN stays NaN. */
static inline float exp_fast(float x)
{
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    float n = x * 1.44269504088896341f + 12582912.0f; /* rounds to an integer */
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

/* 0 or `rescale` at random, for element `i` of a row with its own `seed`. */
static inline float dropout_factor(uint32_t seed, int64_t i, uint32_t threshold, float rescale)
{
    return hash32(seed + (uint32_t)i * 0x9e3779b9U) >= threshold ? rescale : 0.0f;
}
