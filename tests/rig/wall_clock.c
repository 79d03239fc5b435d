/* Preloaded, it shifts the wall clock of a process by the nanoseconds in the file $WALL_CLOCK,
   which may change at any time. The monotonic clock stays; a wait until a wall time is as long as
   it was meant to be when it began. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static const int64_t SECOND = 1000000000;
static const volatile int64_t *shift;
__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("WALL_CLOCK");
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        void *page = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
        shift = page == MAP_FAILED ? NULL : page;
        close(file);
    }
}

static void move(struct timespec *time, int64_t by) {
    int64_t whole = (int64_t)time->tv_sec * SECOND + time->tv_nsec + by;
    time->tv_sec = whole / SECOND;
    time->tv_nsec = whole % SECOND;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = (int)syscall(SYS_clock_gettime, clock, time);
    if (!failed && shift != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        move(time, *shift);
    return failed;
}

int timespec_get(struct timespec *time, int base) {
    return clock_gettime(CLOCK_REALTIME, time) ? 0 : base;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *told) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (told != NULL)
        *told = now.tv_sec;
    return now.tv_sec;
}

/* A time to wait until, as the kernel knows it. No machine runs for the 30 years that a time of the
   monotonic clock would be taken for one of the wall clock after. */
static struct timespec kernels(const struct timespec *until) {
    struct timespec there = *until;
    if (shift != NULL && until->tv_sec > SECOND)
        move(&there, -*shift);
    return there;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    static int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    struct timespec there = kernels(until);
    if (next == NULL) { /* not the one from before 2002, which dlsym may find */
        void *found = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
        *(void **)&next = found ? found : dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    }
    return next(condition, mutex, &there);
}

/* By which librdkafka waits, and which libfaketime 0.9.10 does not know. */
int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex,
                  const struct timespec *restrict until) {
    static int (*next)(cnd_t *, mtx_t *, const struct timespec *);
    struct timespec there = kernels(until);
    if (next == NULL)
        *(void **)&next = dlsym(RTLD_NEXT, "cnd_timedwait");
    return next(condition, mutex, &there);
}
