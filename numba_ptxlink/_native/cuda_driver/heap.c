/*
 * Memory that kernels may access: a table of ranges in the order of addresses, and the allocator of device memory.
 *
 * Device, managed and pinned memory lies in the heap, a large range of addresses that no other part of the process
 * uses. The allocator goes through the heap from the start to the end, and uses freed addresses again only in its next
 * pass, so that an access to freed memory is a fault for a long time. A gap on both sides of each allocation makes an
 * overrun a fault, too.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"

enum {
  ALIGNMENT = 512,           /* bytes, as GPUs align; cudaMalloc guarantees only 256 */
  MAX_GAP = 64 << 10,        /* bytes between two allocations */
  MAX_FILLED = 1 << 20,      /* bytes of a new allocation that are filled, so that no program relies on zeros */
  FILL_BYTE = 0xCB,          /* any value but 0 */
  HEAP_TO_MEMORY_RATIO = 64, /* bytes of address space for each byte of memory: freed addresses stay unused for long */
  COMMIT_STEP = 64 << 20,    /* bytes of the heap that are made accessible at once */
};

static struct allocation *ranges;
static size_t range_count, range_capacity;
static uint64_t generation = 1; /* increases at each change of the table, so that Python knows when to read it again */
static uint64_t allocation_count;
static size_t used[MAX_DEVICES]; /* bytes */
/* The heap is accessible up to `heap_committed`. The search for free addresses starts at `heap_cursor`. */
static uintptr_t heap_start, heap_end, heap_committed, heap_cursor;

/* Return the index of the first range that begins after `address`; `range_count` if there is none. */
static size_t upper_bound(uintptr_t address) {
  size_t low = 0, high = range_count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (ranges[middle].start <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Return the range that contains `address`, or NULL. */
static struct allocation *range_at(uintptr_t address) {
  const size_t index = upper_bound(address);
  struct allocation *found = index ? &ranges[index - 1] : NULL;
  return found && address - found->start < found->size ? found : NULL;
}

static CUresult insert_range(struct allocation range) {
  if (range_count == range_capacity) {
    const size_t capacity = 2 * range_capacity + 64;
    struct allocation *new_ranges = realloc(ranges, capacity * sizeof *ranges);
    REQUIRE(new_ranges, CUDA_ERROR_OUT_OF_MEMORY);
    ranges = new_ranges;
    range_capacity = capacity;
  }
  const size_t index = upper_bound(range.start);
  memmove(ranges + index + 1, ranges + index, (range_count++ - index) * sizeof *ranges);
  range.id = ++allocation_count;
  ranges[index] = range;
  ++generation;
  return CUDA_SUCCESS;
}

static void erase_range(struct allocation *range) {
  const size_t index = (size_t)(range - ranges);
  memmove(range, range + 1, (--range_count - index) * sizeof *ranges);
  ++generation;
}

/* The allocator */

/* Reserve addresses for the heap; return whether there are any. */
static bool reserve_heap(void) {
  size_t size = HEAP_TO_MEMORY_RATIO * devices.memory_size;
  void *start = MAP_FAILED;
  for (; !heap_start && size >= ALIGNMENT; size /= 2) {
    start = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) continue; /* the address space is limited, as by ulimit -v: try half the size */
    heap_start = heap_committed = heap_cursor = (uintptr_t)start;
    heap_end = heap_start + size;
  }
  return heap_start;
}

/* Make the heap accessible up to `end`; return whether that was possible. */
static bool commit(uintptr_t end) {
  if (end <= heap_committed) return true;
  uintptr_t target = heap_committed + ((end - heap_committed + COMMIT_STEP - 1) / COMMIT_STEP) * COMMIT_STEP;
  if (target > heap_end) target = heap_end;
  if (mprotect((void *)heap_committed, target - heap_committed, PROT_READ | PROT_WRITE)) return false;
  heap_committed = target;
  return true;
}

static size_t round_up(size_t size) { return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* Return the first free address after the cursor or, in a second pass, after the start of the heap; 0 if there is none.
   Make the memory accessible, and move the cursor to its end. */
static uintptr_t find_free_address(size_t size, size_t gap) {
  for (int pass = 0; pass < 2; ++pass, heap_cursor = heap_start) {
    uintptr_t candidate = round_up(heap_cursor + gap);
    size_t index = upper_bound(candidate);
    /* Skip the allocation that contains the candidate, or ends less than a gap before the candidate. */
    const struct allocation *previous = index ? &ranges[index - 1] : NULL;
    if (previous && previous->start >= heap_start && previous->start + previous->size + gap > candidate)
      candidate = round_up(previous->start + previous->size + gap);
    /* Skip allocations before which there is too little room. */
    while (index < range_count && ranges[index].start < heap_end && candidate + size + gap > ranges[index].start) {
      candidate = round_up(ranges[index].start + ranges[index].size + gap);
      ++index;
    }
    if (candidate + size + gap <= heap_end && commit(candidate + size + gap)) {
      heap_cursor = candidate + size;
      return candidate;
    }
  }
  return 0;
}

/* Allocate memory; the caller holds the lock. The gap to other allocations is as large as the allocation, up to
   MAX_GAP. */
static CUresult allocate_locked(struct allocation *request) {
  const size_t size = round_up(request->size), gap = size < MAX_GAP ? size : MAX_GAP;
  const bool uses_device_memory = request->kind != PINNED_MEMORY;
  REQUIRE(size >= request->size, CUDA_ERROR_OUT_OF_MEMORY); /* a size close to 2^64 becomes 0 when it is rounded up */
  REQUIRE(!uses_device_memory || size <= devices.memory_size - used[request->device], CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(heap_start || reserve_heap(), CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(size < heap_end - heap_start, CUDA_ERROR_OUT_OF_MEMORY);
  request->start = find_free_address(size, gap);
  REQUIRE(request->start, CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(insert_range(*request));
  if (uses_device_memory) used[request->device] += size;
  return CUDA_SUCCESS;
}

CUresult allocate(struct allocation request, uintptr_t *address) {
  REQUIRE_VALUE(address && request.size);
  pthread_mutex_lock(&driver_lock);
  const CUresult result = allocate_locked(&request);
  pthread_mutex_unlock(&driver_lock);
  CHECK(result);
  count_pool_memory(request.pool, (ptrdiff_t)request.size);
  memset((void *)request.start, FILL_BYTE, request.size < MAX_FILLED ? request.size : MAX_FILLED);
  set_initialised(request.start, request.size, request.kind != DEVICE_MEMORY);
  *address = request.start;
  return CUDA_SUCCESS;
}

/* numba_ptxlink_mark_memory of ../checks/checks.c if initcheck is enabled, else NULL. */
static void (*mark_memory)(uint64_t address, uint64_t size, int is_initialised);

void numba_ptxlink_set_marker(void *function) { *(void **)&mark_memory = function; }

void set_initialised(uintptr_t address, size_t size, bool is_initialised) {
  if (mark_memory) mark_memory(address, size, is_initialised);
}

/* Give pages of a freed allocation back to the system; the addresses stay reserved. */
static void discard_pages(uintptr_t start, size_t size) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  const uintptr_t first_page = (start + page - 1) / page * page, end = (start + size) / page * page;
  if (first_page < end) madvise((void *)first_page, end - first_page, MADV_DONTNEED);
}

/* Remove a range from the table, and free its memory if it was allocated here. The caller holds the lock. */
static void forget_range(struct allocation *range) {
  const struct allocation copy = *range;
  erase_range(range);
  if (copy.kind & (DEVICE_MEMORY | MANAGED_MEMORY)) used[copy.device] -= round_up(copy.size);
  if (copy.kind & ALLOCATED) discard_pages(copy.start, copy.size);
}

/* The table */

CUresult add_range(struct allocation range) {
  pthread_mutex_lock(&driver_lock);
  const CUresult result = insert_range(range);
  pthread_mutex_unlock(&driver_lock);
  return result;
}

CUresult remove_range(uintptr_t start, int kinds, struct allocation *removed) {
  pthread_mutex_lock(&driver_lock);
  struct allocation *found = range_at(start);
  const bool matches = found && found->start == start && found->kind & kinds;
  if (matches) {
    if (removed) *removed = *found;
    forget_range(found);
  }
  pthread_mutex_unlock(&driver_lock);
  return matches ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void remove_context_memory(CUcontext context) {
  pthread_mutex_lock(&driver_lock);
  for (size_t index = range_count; index--;)
    if (ranges[index].context == context) forget_range(&ranges[index]);
  pthread_mutex_unlock(&driver_lock);
}

bool find_allocation(uintptr_t address, struct allocation *found) {
  pthread_mutex_lock(&driver_lock);
  const struct allocation *range = range_at(address);
  if (range) *found = *range;
  pthread_mutex_unlock(&driver_lock);
  return range;
}

bool is_in_heap(uintptr_t address) { return address - heap_start < heap_end - heap_start; }

size_t used_memory(CUdevice device) { return used[device]; }

void regions_changed(void) {
  pthread_mutex_lock(&driver_lock);
  ++generation;
  pthread_mutex_unlock(&driver_lock);
}

/* For launches: the memory that kernels on a device may access */

bool is_accessible(const struct allocation *range, const struct CUctx_st *context) {
  if (range->kind != DEVICE_MEMORY) return true;
  return range->device == context->device || context->peers >> range->device & 1 ||
         is_pool_peer(range->pool, context->device);
}

/*
 * Write the first and the end address of each range that kernels may access to `table`, writable ranges first; set
 * `*known` to the generation of the table. Return the number of written ranges. If `*known` is the current generation,
 * or `capacity` too small, write nothing and return the number of all ranges. The kernels are those of the current
 * context; without one, those of the primary context of `device`.
 */
size_t numba_ptxlink_regions(int device, uint64_t *known, uintptr_t (*table)[2], size_t capacity,
                             size_t *writable_count) {
  const CUcontext current = current_context(), context = current ? current : primary_context(device);
  pthread_mutex_lock(&driver_lock);
  size_t count = 0;
  if (*known != generation && range_count <= capacity) {
    /* First all writable ranges, then those that kernels may only read. */
    for (int read_only = 0; read_only < 2; ++read_only) {
      for (size_t index = 0; index < range_count; ++index) {
        const struct allocation *range = &ranges[index];
        if ((range->kind == CONSTANT) != read_only || !is_accessible(range, context)) continue;
        table[count][0] = range->start;
        table[count++][1] = range->start + range->size;
      }
      if (!read_only) *writable_count = count;
    }
    *known = generation;
  } else {
    count = range_count;
  }
  pthread_mutex_unlock(&driver_lock);
  return count;
}

/* Write the range that begins last before `address`, and the first one after it, for error messages. */
unsigned numba_ptxlink_neighbours(uintptr_t address, struct allocation neighbours[2]) {
  unsigned count = 0;
  pthread_mutex_lock(&driver_lock);
  const size_t index = upper_bound(address);
  if (index) neighbours[count++] = ranges[index - 1];
  if (index < range_count) neighbours[count++] = ranges[index];
  pthread_mutex_unlock(&driver_lock);
  return count;
}

uint64_t numba_ptxlink_generation(void) { return __atomic_load_n(&generation, __ATOMIC_ACQUIRE); }
