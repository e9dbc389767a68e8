/*
 * Checks of kernels on the CPU that compare an access with earlier ones: racecheck, initcheck and synccheck.
 *
 * A cell for each word of 4 bytes has the last write, the last two reads by different threads, and which bytes are
 * initialised. Two accesses of one launch race if at least one is a write, at most one is atomic, and no barrier orders
 * them: barriers of a block order its threads, grid barriers order all threads, and warp operations order the lanes of
 * a warp. A block that has executed an atomic operation is assumed to have waited for all other blocks.
 * A read does not race with atomic operations if a compare-and-swap by the same thread follows: the comparison fails if
 * another thread has changed the value.
 */
#define _DEFAULT_SOURCE /* declares on_exit */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* `Access` of _cpu/runtime.py has the same numbers. */
enum access_kind { READ, WRITE, ATOMIC, ATOMIC_READ, ATOMIC_WRITE, VOLATILE_READ, COMPARE_AND_SWAP };
/* Atomic operations are ORDERED, and volatile reads VOLATILE. Two accesses race only if at least one is PLAIN, so
   that a volatile read does not race with an atomic operation. */
enum order { PLAIN, ORDERED, VOLATILE };
enum report_kind { RACE, UNINITIALISED, DIVERGENT_BARRIER }; /* the same numbers as in _cpu/checks.py */
enum {
  MAX_THREADS = 1024, /* of a block, as in CUDA */
  MAX_REPORTS = 64,   /* of one worker in a launch: more are dropped */
  MAX_COMPARED_READS = 64,
};
enum { WORD_BYTES = 4, PAGE_BYTES = 4096, PAGE_WORDS = PAGE_BYTES / WORD_BYTES, WARP_SIZE = 32 };
enum { SHARED_START = 1024 }; /* the first address in shared memory, as in _cpu/runtime.py */
enum { RACECHECK = 1, INITCHECK = 2 }; /* bits of checks.enabled */
enum scope { BLOCK_SCOPE, WARP_SCOPE, GRID_SCOPE }; /* the same numbers as `Scope` of _cpu/runtime.py */

/* `launch` is the number of a launch, 0 if there was no access. Each grid barrier adds 1, except for shared memory: a
   grid barrier orders accesses as a new launch does. `site` is the number of a PTX statement,
   and `thread` an index in the block. `epoch` counts the barriers of the block that the thread has passed, and
   `warp_epoch` its warp operations. */
struct access {
  uint32_t launch, block, site;
  uint16_t thread, epoch, warp_epoch;
  uint8_t bytes; /* a bit for each byte of the word */
  uint8_t order;
};

/* The last write to a word, and the last reads by two threads, the latest first. */
struct cell {
  struct access write, reads[2];
  uint32_t uninitialised; /* a bit for each byte of the word */
};

/* A message to the user, for an access or barrier at `site`; the other access of a race is at `other_site`. The message
   is shown once, and `count` says how often its cause happened. `with_atomic`: exactly one access is atomic. */
struct report {
  uint32_t kind, site, other_site, thread, other_thread, block, other_block, size, count, is_write, other_is_write;
  uint32_t is_shared, with_atomic;
  uint64_t address;
};

/* The checks of one worker, which runs one block at a time. `orders_blocks`: whether the block has executed an atomic
   operation. `grid_barriers`: how many grid barriers each thread has passed; they need one worker for each block. */
struct checks {
  uint32_t enabled, launch, block, orders_blocks, report_count, compared_read_count;
  uint32_t compared_reads[MAX_COMPARED_READS]; /* sites of reads that a compare-and-swap of the same thread follows */
  uint16_t epochs[MAX_THREADS], warp_epochs[MAX_THREADS];
  uint32_t grid_barriers[MAX_THREADS];
  struct report reports[MAX_REPORTS];
};

/* Offsets of fields in BlockContext of _cpu/runtime.py. _cpu/checks.py passes them in the order of these members. */
static struct {
  uint32_t checks, ctaid, nctaid, current_thread, shared_base, shared_size, local_base, local_total_size;
} fields;

/* FIELD(context, uint32_t, ctaid) is the field `ctaid` of a BlockContext. */
#define FIELD(context, type, name) (*(type *)((char *)(context) + fields.name))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects the pages, the cells and `launch_count` */
static uint32_t launch_count;

/* The pages of memory that have cells, in a hash table by `number`, which is the address of a page / PAGE_BYTES.
   Collisions take the next free entry. The capacity is a power of two. */

struct page {
  uint64_t number;
  struct cell *cells; /* NULL in a free entry */
};
static struct page *pages;
static size_t page_capacity, page_count;

/* Return the entry of a page, or the free entry where it belongs. */
static struct page *find_page(uint64_t number) {
  /* Fibonacci hashing: the factor is 2^64 / golden ratio. The lowest bits of the product vary least: drop 20. */
  size_t index = (number * 0x9E3779B97F4A7C15u >> 20) & (page_capacity - 1);
  while (pages[index].cells && pages[index].number != number) index = (index + 1) & (page_capacity - 1);
  return &pages[index];
}

/* Double the capacity of the table; return whether there was memory for it. */
static bool grow_pages(void) {
  struct page *old_pages = pages;
  const size_t old_capacity = page_capacity;
  const size_t capacity = old_capacity ? 2 * old_capacity : 1024;
  struct page *new_pages = calloc(capacity, sizeof *new_pages);
  if (!new_pages) return false;
  pages = new_pages;
  page_capacity = capacity;
  for (size_t index = 0; index < old_capacity; ++index)
    if (old_pages[index].cells) *find_page(old_pages[index].number) = old_pages[index];
  free(old_pages);
  return true;
}

/* Return the cell of the word at an address; NULL if there is no memory for it. */
static struct cell *cell_at(uint64_t address) {
  if (2 * page_count >= page_capacity && !grow_pages()) return NULL;
  struct page *page = find_page(address / PAGE_BYTES);
  if (!page->cells) {
    struct cell *cells = calloc(PAGE_WORDS, sizeof *cells);
    if (!cells) return NULL;
    *page = (struct page){address / PAGE_BYTES, cells};
    ++page_count;
  }
  return &page->cells[address % PAGE_BYTES / WORD_BYTES];
}

static uint64_t next_word(uint64_t address) { return (address / WORD_BYTES + 1) * WORD_BYTES; }

/* Return which bytes of the word at `address` lie from `address` to `end`: bit i is for byte i of the word. */
static uint8_t bytes_in_word(uint64_t address, uint64_t end) {
  const uint64_t word = address / WORD_BYTES * WORD_BYTES;
  const unsigned begin = (unsigned)(address - word);
  const unsigned limit = end - word < WORD_BYTES ? (unsigned)(end - word) : WORD_BYTES;
  return (uint8_t)((1u << limit) - (1u << begin));
}

/* Reports */

/* Add a report, or count it if there is one for the same statements; drop it if there are MAX_REPORTS. */
static void add_report(struct checks *checks, struct report report) {
  for (uint32_t index = 0; index < checks->report_count; ++index) {
    struct report *known = &checks->reports[index];
    if (known->kind == report.kind && known->site == report.site && known->other_site == report.other_site) {
      ++known->count;
      return;
    }
  }
  if (checks->report_count == MAX_REPORTS) return;
  report.count = 1;
  checks->reports[checks->report_count++] = report;
}

/* Races */

/* Whether two accesses to a word concern the same byte, at least one is PLAIN, and nothing orders them: in a block a
   barrier or warp operation, between blocks an atomic operation. A grid barrier changes `launch`. See the start of this
   file. */
static bool are_unordered(const struct checks *checks, const struct access *now, const struct access *before,
                          bool is_shared) {
  if (now->launch != before->launch || !(now->bytes & before->bytes)) return false;
  if (now->order != PLAIN && before->order != PLAIN) return false;
  if (now->block != before->block) return !is_shared && !checks->orders_blocks;
  if (now->thread == before->thread || now->epoch != before->epoch) return false;
  return now->thread / WARP_SIZE != before->thread / WARP_SIZE || now->warp_epoch == before->warp_epoch;
}

static void report_race(struct checks *checks, const struct access *now, const struct access *before, uint64_t address,
                        uint32_t size, bool is_write, bool other_is_write, bool is_shared) {
  add_report(checks, (struct report){.kind = RACE, .site = now->site, .other_site = before->site,
                                     .thread = now->thread, .other_thread = before->thread, .block = now->block,
                                     .other_block = before->block, .size = size, .is_write = is_write,
                                     .other_is_write = other_is_write, .is_shared = is_shared,
                                     .with_atomic = (now->order == ORDERED) != (before->order == ORDERED),
                                     .address = address});
}

/* Whether the bytes that a write stores are in memory already: the order of two such writes has no effect. */
static bool is_same_value(uint64_t word, uint8_t bytes, uint32_t value) {
  for (unsigned byte = 0; byte < WORD_BYTES; ++byte)
    if (bytes >> byte & 1 && *(const uint8_t *)(word + byte) != (uint8_t)(value >> 8 * byte)) return false;
  return true;
}

static bool is_write(enum access_kind kind) {
  return kind == WRITE || kind == ATOMIC || kind == ATOMIC_WRITE || kind == COMPARE_AND_SWAP;
}

static bool is_compared_read(const struct checks *checks, uint32_t site) {
  for (uint32_t index = 0; index < checks->compared_read_count; ++index)
    if (checks->compared_reads[index] == site) return true;
  return false;
}

/* Remember the site of a plain read that a compare-and-swap of the same thread follows, as in the loop
   `old = *p; do { seen = old; old = atomicCAS(p, seen, f(seen)); } while (old != seen);` */
static void note_compared_read(struct checks *checks, const struct access *swap, const struct access *read) {
  if (read->launch == swap->launch && read->block == swap->block && read->thread == swap->thread &&
      read->order == PLAIN && checks->compared_read_count < MAX_COMPARED_READS && !is_compared_read(checks, read->site))
    checks->compared_reads[checks->compared_read_count++] = read->site;
}

/* Check the part of an access of `size` bytes at `address` that lies in the word at `word`, and remember it in the
   cell of the word. `value` has the bytes of the word that a write stores; `address` and `size` are for reports. */
static void check_word(struct checks *checks, struct access now, enum access_kind kind, uint64_t address,
                       uint32_t size, uint64_t word, uint32_t value, bool is_shared) {
  struct cell *cell = cell_at(word);
  if (!cell) return;
  const bool writes = is_write(kind);
  if (checks->enabled & RACECHECK) {
    const bool has_no_effect = kind == WRITE && is_same_value(word, now.bytes, value);
    if (!has_no_effect && are_unordered(checks, &now, &cell->write, is_shared))
      report_race(checks, &now, &cell->write, address, size, writes, true, is_shared);
    for (unsigned index = 0; writes && index < 2; ++index)
      if (are_unordered(checks, &now, &cell->reads[index], is_shared)) {
        report_race(checks, &now, &cell->reads[index], address, size, true, false, is_shared);
        break;
      }
  }
  if (kind == COMPARE_AND_SWAP) note_compared_read(checks, &now, &cell->reads[0]);
  if (writes) {
    cell->write = now;
    cell->uninitialised &= ~(uint32_t)now.bytes;
  } else {
    const struct access *last_read = &cell->reads[0];
    if (last_read->thread != now.thread || last_read->block != now.block || last_read->launch != now.launch)
      cell->reads[1] = *last_read;
    cell->reads[0] = now;
  }
}

/* Whether no byte of an access is initialised. Some initialised bytes suffice: a copy of a struct also reads padding,
   which is never initialised. A word of shared memory is initialised if this block has written to it. */
static bool is_uninitialised(const struct checks *checks, uint64_t address, uint64_t end, bool is_shared) {
  for (uint64_t part = address; part < end; part = next_word(part)) {
    const struct cell *cell = cell_at(part);
    if (!cell) return false;
    const uint8_t bytes = bytes_in_word(part, end);
    const bool is_written = cell->write.launch == checks->launch && cell->write.block == checks->block;
    const bool is_initialised = is_shared ? is_written : (cell->uninitialised & bytes) != bytes;
    if (is_initialised) return false;
  }
  return true;
}

/* Return the checks of the worker that runs the block of `context`. If the block is another one than at the last call,
   count its barriers from 0. */
static struct checks *current_checks(void *context) {
  struct checks *checks = FIELD(context, struct checks *, checks);
  const uint32_t *ctaid = &FIELD(context, uint32_t, ctaid), *nctaid = &FIELD(context, uint32_t, nctaid);
  const uint32_t block = ctaid[0] + nctaid[0] * (ctaid[1] + nctaid[1] * ctaid[2]);
  if (checks->block != block) {
    checks->block = block;
    checks->orders_blocks = 0;
    memset(checks->epochs, 0, sizeof checks->epochs);
    memset(checks->warp_epochs, 0, sizeof checks->warp_epochs);
  }
  return checks;
}

/* Called by generated code before an access of `size` bytes; `value` has the first 8 bytes that a write stores. */
void numba_ptxlink_check_access(void *context, uint64_t address, uint64_t size, uint32_t kind, uint64_t site,
                                uint64_t value) {
  struct checks *checks = current_checks(context);
  /* Local memory belongs to one thread. */
  if (address - FIELD(context, uint64_t, local_base) < FIELD(context, uint64_t, local_total_size)) return;
  const uint64_t shared_start = FIELD(context, uint64_t, shared_base) + SHARED_START;
  const bool is_shared = address - shared_start < FIELD(context, uint64_t, shared_size);
  const uint32_t thread = FIELD(context, uint32_t, current_thread);
  const uint32_t grid_barriers = is_shared ? 0 : checks->grid_barriers[thread];
  const struct access now = {.launch = checks->launch + grid_barriers, .block = checks->block, .site = (uint32_t)site,
                             .thread = (uint16_t)thread, .epoch = checks->epochs[thread],
                             .warp_epoch = checks->warp_epochs[thread],
                             .order = kind == VOLATILE_READ                   ? VOLATILE
                                      : kind == READ || kind == WRITE ? PLAIN
                                                                      : ORDERED};
  pthread_mutex_lock(&lock);
  if (now.order == ORDERED) checks->orders_blocks = 1;
  const uint64_t end = address + size;
  if (checks->enabled & INITCHECK && kind != WRITE && kind != ATOMIC_WRITE &&
      is_uninitialised(checks, address, end, is_shared))
    add_report(checks, (struct report){.kind = UNINITIALISED, .site = now.site, .thread = thread,
                                       .block = now.block, .size = (uint32_t)size, .is_shared = is_shared,
                                       .address = address});
  for (uint64_t part = address; part < end; part = next_word(part)) {
    struct access part_access = now;
    part_access.bytes = bytes_in_word(part, end);
    /* The bytes of `value` from this part on, moved to their place in the word. */
    const unsigned shift = 8 * (unsigned)(part - address);
    const uint32_t part_value = (uint32_t)(shift < 64 ? value >> shift : 0);
    const uint32_t word_value = part_value << 8 * (part % WORD_BYTES);
    check_word(checks, part_access, kind, address, (uint32_t)size, part / WORD_BYTES * WORD_BYTES, word_value,
               is_shared);
  }
  pthread_mutex_unlock(&lock);
}

/* Called by generated code when a thread has passed a barrier or a warp operation. */
void numba_ptxlink_check_order(void *context, uint32_t scope) {
  struct checks *checks = current_checks(context);
  const uint32_t thread = FIELD(context, uint32_t, current_thread);
  if (scope == WARP_SCOPE) ++checks->warp_epochs[thread];
  else ++checks->epochs[thread];
  if (scope != GRID_SCOPE) return;
  const uint32_t number = checks->launch + ++checks->grid_barriers[thread];
  pthread_mutex_lock(&lock);
  if (launch_count < number) launch_count = number; /* later launches get other numbers */
  pthread_mutex_unlock(&lock);
}

/* Called by the scheduler of runtime.ll if a barrier opens although threads of the block have exited or wait at another
   barrier, or if the mask of a warp operation does not name the thread. */
void numba_ptxlink_check_barrier(void *context, uint32_t site, uint32_t other_site, uint32_t thread) {
  struct checks *checks = current_checks(context);
  add_report(checks, (struct report){.kind = DIVERGENT_BARRIER, .site = site, .other_site = other_site,
                                     .thread = thread, .block = checks->block});
}

/* Called by _cpu/checks.py */

void numba_ptxlink_checks_fields(const uint32_t *offsets) { memcpy(&fields, offsets, sizeof fields); }

size_t numba_ptxlink_checks_size(void) { return sizeof(struct checks); }

/* Begin a launch, and return its number. The first worker passes 0 as `launch`, and other workers of the launch pass
   the number that the first one got. */
uint32_t numba_ptxlink_checks_begin(struct checks *checks, uint32_t enabled, uint32_t launch) {
  pthread_mutex_lock(&lock);
  if (!launch) launch = ++launch_count;
  pthread_mutex_unlock(&lock);
  checks->enabled = enabled;
  checks->launch = launch;
  checks->block = UINT32_MAX; /* so that the first access begins a block */
  checks->report_count = checks->compared_read_count = 0;
  memset(checks->grid_barriers, 0, sizeof checks->grid_barriers);
  return launch;
}

/* Set `reports` to the reports of a launch, and return their number. Races of reads that a compare-and-swap follows are
   removed only here, since the compare-and-swap may come after the race. */
uint32_t numba_ptxlink_checks_reports(struct checks *checks, const struct report **reports) {
  uint32_t count = 0;
  for (uint32_t index = 0; index < checks->report_count; ++index) {
    const struct report *report = &checks->reports[index];
    const bool has_read = !report->is_write || !report->other_is_write;
    const uint32_t read_site = report->is_write ? report->other_site : report->site;
    if (report->kind == RACE && report->with_atomic && has_read && is_compared_read(checks, read_site)) continue;
    checks->reports[count++] = *report;
  }
  *reports = checks->reports;
  return checks->report_count = count;
}

/* Called by the CUDA driver of this package after memory was allocated, or written by a copy or fill. */
void numba_ptxlink_mark_memory(uint64_t address, uint64_t size, int is_initialised) {
  pthread_mutex_lock(&lock);
  const uint64_t end = address + size;
  for (uint64_t part = address; part < end; part = next_word(part)) {
    struct cell *cell = cell_at(part);
    if (!cell) break;
    const uint32_t bytes = bytes_in_word(part, end);
    cell->uninitialised = is_initialised ? cell->uninitialised & ~bytes : cell->uninitialised | bytes;
  }
  pthread_mutex_unlock(&lock);
}

static int exit_status;

static void end_with_status(int status, void *unused) {
  (void)unused;
  /* If a handler calls `exit`, glibc runs the remaining handlers, and the process ends with the new status. */
  if (!status && exit_status) exit(exit_status);
}

/* If the process would end with the status 0, let it end with `status`. */
void numba_ptxlink_checks_set_exit_status(int status) {
  static bool registered;
  if (!registered) registered = !on_exit(end_with_status, NULL);
  exit_status = status;
}
