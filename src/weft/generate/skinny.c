/* out = x W (+ bias) (+ out): a few rows times a whole matrix, which is what writing a token is.

   The time is that of reading W once, so W lies in memory as it is read: blocks of COLUMNS columns, each block its K
   rows end to end (see skinny.py). A tile of ROWS rows of x stays in registers while a block streams by; further tiles
   find the block in the cache. Threads share the blocks out among themselves. */

#define COLUMNS 64

#if defined(__AVX512F__)
#define WIDE 16 /* floats in a register */
#define PARTS 4 /* registers across a tile */
#define ROWS 6  /* rows of a tile: ROWS * PARTS sums, PARTS columns and a number of x fit the registers */
#elif defined(__AVX__)
#define WIDE 8
#define PARTS 2
#define ROWS 6
#else
#define WIDE 4
#define PARTS 4
#define ROWS 4
#endif
#define LANES (WIDE * PARTS)
#define AHEAD 8   /* rows of a block that are asked for before they are needed */
#define STREAMS 4
#define UNROLL _Pragma("GCC unroll 8")

typedef float wide __attribute__((vector_size(WIDE * sizeof(float)), aligned(4)));

/* Row k of the block, for COUNT rows of x. */
#define ADD(COUNT, k)                                                                                      \
    {                                                                                                      \
        wide column[PARTS];                                                                                \
        UNROLL for (int p = 0; p < LANES; p += 16) __builtin_prefetch(w + ((k) + AHEAD) * COLUMNS + p);    \
        UNROLL for (int p = 0; p < PARTS; p++) column[p] = *(const wide *)(w + (k) * COLUMNS + p * WIDE);  \
        UNROLL for (int r = 0; r < COUNT; r++)                                                             \
            UNROLL for (int p = 0; p < PARTS; p++) sum[r][p] += x[r * depth + (k)] * column[p];            \
    }

/* Memory answers several streams faster than one: a block is read from STREAMS places at a time. */
#define TILE(COUNT)                                                                                        \
    static void tile_##COUNT(const float *x, const float *w, long depth, float *sums)                      \
    {                                                                                                      \
        wide sum[COUNT][PARTS] = {0};                                                                      \
        long part = depth / STREAMS;                                                                       \
        for (long k = 0; k < part; k++)                                                                    \
            UNROLL for (long stream = 0; stream < STREAMS; stream++) ADD(COUNT, stream * part + k)         \
        for (long k = STREAMS * part; k < depth; k++) ADD(COUNT, k)                                        \
        for (int r = 0; r < COUNT; r++)                                                                    \
            for (int p = 0; p < PARTS; p++) *(wide *)(sums + r * LANES + p * WIDE) = sum[r][p];            \
    }
TILE(1) TILE(2) TILE(3) TILE(4)
#if ROWS == 6
TILE(5) TILE(6)
#endif

static void tile(int count, const float *x, const float *w, long depth, float *sums)
{
    switch (count) {
    case 1: tile_1(x, w, depth, sums); break;
    case 2: tile_2(x, w, depth, sums); break;
    case 3: tile_3(x, w, depth, sums); break;
    case 4: tile_4(x, w, depth, sums); break;
#if ROWS == 6
    case 5: tile_5(x, w, depth, sums); break;
    case 6: tile_6(x, w, depth, sums); break;
#endif
    }
}

/* x (rows, depth), blocks (width / COLUMNS rounded up, depth, COLUMNS), bias (width) or none, out (rows, width); with
   `add`, to what is there. */
void skinny(const float *x, const float *blocks, const float *bias, float *out, long rows, long depth, long width,
            int add, int threads)
{
    long count = (width + COLUMNS - 1) / COLUMNS;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long block = 0; block < count; block++) {
        float sums[ROWS * LANES] __attribute__((aligned(64)));
        for (long row = 0; row < rows; row += ROWS) {
            int many = rows - row < ROWS ? rows - row : ROWS;
            for (long part = 0; part < COLUMNS; part += LANES) {
                long first = block * COLUMNS + part, last = first + LANES < width ? first + LANES : width;
                tile(many, x + row * depth, blocks + block * depth * COLUMNS + part, depth, sums);
                for (int r = 0; r < many; r++)
                    for (long column = first; column < last; column++) {
                        float *place = out + (row + r) * width + column;
                        *place = sums[r * LANES + column - first] + (bias ? bias[column] : 0) + (add ? *place : 0);
                    }
            }
        }
    }
}
