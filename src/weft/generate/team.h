/* The threads of a parallel region, and how they wait for each other between its loops.

   A step has about ten short loops per layer. OpenMP's own barrier puts a thread to sleep after a few microseconds here
   (see threads.py), and waking it takes longer than a loop. So threads meet by spinning for a while and then yielding their
   core: on a busy machine, the thread that is awaited may need it. */

#pragma once

#include <omp.h>
#include <sched.h>
#include <stdint.h>

#define SPINS 4000

struct team {
    int32_t arrived, phase;
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Returns when all threads of the region have called it. */
static void meet(struct team *team)
{
    int32_t size = omp_get_num_threads();
    if (size == 1) return;
    int32_t phase = __atomic_load_n(&team->phase, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&team->arrived, 1, __ATOMIC_ACQ_REL) == size) {
        __atomic_store_n(&team->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&team->phase, phase + 1, __ATOMIC_RELEASE);
        return;
    }
    for (int spins = 0; __atomic_load_n(&team->phase, __ATOMIC_ACQUIRE) == phase; spins++)
        if (spins < SPINS)
            relax();
        else
            sched_yield();
}
