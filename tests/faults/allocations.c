// To be preloaded, with PYTHONMALLOC=malloc: counts what a call asks the C library for, and lets one of these
// allocations fail: of NumPy's arrays, of what the extension needs, of Python's objects.
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static __thread int armed;
static __thread long seen, wanted;

void arm(long which) { seen = 0, wanted = which, armed = 1; }
long disarm(void) { return armed = 0, seen; }

enum { BOUND_METHOD = 56 };  // bytes; nanobind uses one without looking whether it got it

static int fails(void) {
    if (!armed || ++seen != wanted) return 0;
    errno = ENOMEM;
    return 1;
}

void* malloc(size_t size) { return size != BOUND_METHOD && fails() ? NULL : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return fails() ? NULL : __libc_calloc(count, size); }
void* realloc(void* old, size_t size) { return fails() ? NULL : __libc_realloc(old, size); }
void* aligned_alloc(size_t alignment, size_t size) { return fails() ? NULL : __libc_memalign(alignment, size); }
int posix_memalign(void** out, size_t alignment, size_t size) {
    if (fails()) return ENOMEM;
    *out = __libc_memalign(alignment, size);
    return *out ? 0 : ENOMEM;
}
void* mmap(void* address, size_t size, int protection, int flags, int file, off_t offset) {
    if (fails()) return MAP_FAILED;
    return (void*)syscall(SYS_mmap, address, size, protection, flags, file, offset);
}
