/*
 * Checks of kernels on the CPU that compare an access with earlier ones: racecheck, initcheck and synccheck.
 *
 * A cell for each word of 4 bytes has the last write, the last two reads by different threads, and which bytes are
 * initialised. Two accesses race if they are of one launch, one of them is a write, not both are atomic, and no barrier
 * orders them: threads of a block are ordered by its barriers, lanes of a warp by warp operations as well. Blocks are not
 * ordered, except by atomic operations and by barriers of the grid: a block that has executed one is assumed to have waited.
 * A read whose thread then compares and swaps does not race with atomic operations, since the comparison detects them.
 */
#define _DEFAULT_SOURCE /* on_exit */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum access_kind { READ, WRITE, ATOMIC, ATOMIC_READ, ATOMIC_WRITE, VOLATILE_READ, COMPARE_AND_SWAP };
enum order { PLAIN, ORDERED, VOLATILE }; /* a volatile read does not race with an atomic operation */
enum report_kind { RACE, UNINITIALISED, DIVERGENT_BARRIER };
enum { MAX_THREADS = 1024, MAX_REPORTS = 64, MAX_COMPARED_READS = 64 };
enum { WORD = 4, PAGE = 4096, WORDS = PAGE / WORD, WARP = 32 };
enum { RACECHECK = 1, INITCHECK = 2 };
enum scope { BLOCK_SCOPE, WARP_SCOPE, GRID_SCOPE };

struct access {
  uint32_t launch, block, site;
  uint16_t thread, epoch, warp_epoch;
  uint8_t bytes; /* a bit for each byte of the word */
  uint8_t order;
};

struct cell {
  struct access write, reads[2];
  uint32_t uninitialised; /* a bit for each byte of the word */
};

struct report {
  uint32_t kind, site, other_site, thread, other_thread, block, other_block, size, count, is_write, other_is_write;
  uint32_t is_shared, with_atomic; /* one access is atomic, and one is plain */
  uint64_t address;
};

/* The checks of one worker, which runs one block at a time. */
struct checks {
  uint32_t enabled, launch, block, orders_blocks, report_count, compared_read_count;
  uint32_t compared_reads[MAX_COMPARED_READS]; /* sites of reads that a compare-and-swap of the same thread follows */
  uint16_t epochs[MAX_THREADS], warp_epochs[MAX_THREADS];
  struct report reports[MAX_REPORTS];
};

/* Offsets of fields in BlockContext of _cpu/runtime.py, in this order. */
static struct {
  uint32_t checks, ctaid, nctaid, current_thread, shared_base, shared_size, local_base, local_total_size;
} fields;

#define FIELD(context, type, name) (*(type *)((char *)(context) + fields.name))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t launches;

/* Cells, by the pages of memory */

struct page {
  uint64_t number;
  struct cell *cells;
};
static struct page *pages;
static size_t page_capacity, page_count;

static struct page *find_page(uint64_t number) {
  size_t index = number * 0x9E3779B97F4A7C15u >> 20 & (page_capacity - 1);
  while (pages[index].cells && pages[index].number != number) index = (index + 1) & (page_capacity - 1);
  return &pages[index];
}

static bool grow(void) {
  struct page *old = pages;
  const size_t old_capacity = page_capacity;
  const size_t capacity = old_capacity ? 2 * old_capacity : 1024;
  struct page *grown = calloc(capacity, sizeof *grown);
  if (!grown) return false;
  pages = grown;
  page_capacity = capacity;
  for (size_t index = 0; index < old_capacity; ++index)
    if (old[index].cells) *find_page(old[index].number) = old[index];
  free(old);
  return true;
}

/* Return the cell of a word; NULL if there is no memory for it. */
static struct cell *cell_at(uint64_t address) {
  if (2 * page_count >= page_capacity && !grow()) return NULL;
  struct page *page = find_page(address / PAGE);
  if (!page->cells) {
    struct cell *cells = calloc(WORDS, sizeof *cells);
    if (!cells) return NULL;
    *page = (struct page){address / PAGE, cells};
    ++page_count;
  }
  return &page->cells[address % PAGE / WORD];
}

/* Return the bits of the bytes from `address` on that are in its word, and before `end`. */
static uint8_t bytes_in_word(uint64_t address, uint64_t end) {
  const unsigned first = address % WORD, last = end - address < WORD - first ? first + (end - address) : WORD;
  return (uint8_t)((1u << last) - (1u << first));
}

/* Reports */

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

static bool are_unordered(const struct checks *checks, const struct access *one, const struct access *two,
                          bool is_shared) {
  if (one->launch != two->launch || !(one->bytes & two->bytes) || (one->order && two->order)) return false;
  if (one->block != two->block) return !is_shared && !checks->orders_blocks;
  if (one->thread == two->thread || one->epoch != two->epoch) return false;
  return one->thread / WARP != two->thread / WARP || one->warp_epoch == two->warp_epoch;
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

/* Whether the bytes that a write stores are in memory already: no thread can observe who stored them. */
static bool is_same_value(uint64_t word, uint8_t bytes, uint32_t value) {
  for (unsigned byte = 0; byte < WORD; ++byte)
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

/* A loop such as `old = *p; do { seen = old; old = atomicCAS(p, seen, f(seen)); } while (old != seen);` */
static void note_compared_read(struct checks *checks, const struct access *swap, const struct access *read) {
  if (read->launch == swap->launch && read->block == swap->block && read->thread == swap->thread &&
      read->order == PLAIN && checks->compared_read_count < MAX_COMPARED_READS && !is_compared_read(checks, read->site))
    checks->compared_reads[checks->compared_read_count++] = read->site;
}

static void check_word(struct checks *checks, struct access now, enum access_kind kind, uint64_t address,
                       uint32_t size, uint64_t word, uint32_t value, bool is_shared) {
  struct cell *cell = cell_at(word);
  if (!cell) return;
  const bool reads = kind != WRITE && kind != ATOMIC_WRITE, writes = is_write(kind);
  if (checks->enabled & RACECHECK) {
    const bool same = kind == WRITE && is_same_value(word, now.bytes, value);
    if (!(same && writes && !reads) && are_unordered(checks, &now, &cell->write, is_shared))
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
    const struct access *last = &cell->reads[0];
    if (last->thread != now.thread || last->block != now.block || last->launch != now.launch)
      cell->reads[1] = *last;
    cell->reads[0] = now;
  }
}

/* Whether no byte of an access is initialised. Copies of structs also read padding, which is never initialised. */
static bool is_uninitialised(const struct checks *checks, uint64_t address, uint64_t end, bool is_shared) {
  for (uint64_t at = address; at < end; at = (at / WORD + 1) * WORD) {
    const struct cell *cell = cell_at(at);
    const uint8_t bytes = bytes_in_word(at, end);
    const bool is_written = cell && cell->write.launch == checks->launch && cell->write.block == checks->block;
    if (!cell || (is_shared ? is_written : (cell->uninitialised & bytes) != bytes)) return false;
  }
  return true;
}

/* Return the checks of a worker. If the worker runs another block than before, no barrier has been passed yet. */
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

/* Called by generated code before an access; `value` has the bytes that a write stores. */
void numba_ptxlink_check_access(void *context, uint64_t address, uint64_t size, uint32_t kind, uint64_t site,
                                uint64_t value) {
  struct checks *checks = current_checks(context);
  if (address - FIELD(context, uint64_t, local_base) < FIELD(context, uint64_t, local_total_size)) return;
  const uint64_t shared_start = FIELD(context, uint64_t, shared_base) + 1024;
  const bool is_shared = address - shared_start < FIELD(context, uint64_t, shared_size);
  const uint32_t thread = FIELD(context, uint32_t, current_thread);
  const struct access now = {.launch = checks->launch, .block = checks->block, .site = (uint32_t)site,
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
  for (uint64_t at = address; at < end; at = (at / WORD + 1) * WORD) {
    struct access part = now;
    part.bytes = bytes_in_word(at, end);
    const unsigned shift = at == address ? 0 : 8 * (unsigned)(at - address);
    const uint32_t bits = (uint32_t)(shift < 64 ? value >> shift : 0);
    check_word(checks, part, kind, address, (uint32_t)size, at / WORD * WORD, bits << 8 * (at % WORD), is_shared);
  }
  pthread_mutex_unlock(&lock);
}

/* Called by generated code when a thread has passed a barrier. */
void numba_ptxlink_check_order(void *context, uint32_t scope) {
  struct checks *checks = current_checks(context);
  const uint32_t thread = FIELD(context, uint32_t, current_thread);
  ++(scope == WARP_SCOPE ? checks->warp_epochs : checks->epochs)[thread];
  if (scope == GRID_SCOPE) checks->orders_blocks = 1;
}

/* Called by the scheduler if a barrier opens although threads of the block have ended or wait at another barrier. */
void numba_ptxlink_check_barrier(void *context, uint32_t site, uint32_t other_site, uint32_t thread) {
  struct checks *checks = current_checks(context);
  add_report(checks, (struct report){.kind = DIVERGENT_BARRIER, .site = site, .other_site = other_site,
                                     .thread = thread, .block = checks->block});
}

/* Called by Python */

void numba_ptxlink_checks_fields(const uint32_t *offsets) { memcpy(&fields, offsets, sizeof fields); }

size_t numba_ptxlink_checks_size(void) { return sizeof(struct checks); }

/* Begin a launch; workers of one launch pass the same number, 0 for a new one. */
uint32_t numba_ptxlink_checks_begin(struct checks *checks, uint32_t enabled, uint32_t launch) {
  pthread_mutex_lock(&lock);
  if (!launch) launch = ++launches;
  pthread_mutex_unlock(&lock);
  checks->enabled = enabled;
  checks->launch = launch;
  checks->block = UINT32_MAX; /* so that the first access begins a block */
  checks->report_count = checks->compared_read_count = 0;
  return launch;
}

uint32_t numba_ptxlink_checks_reports(struct checks *checks, const struct report **reports) {
  uint32_t count = 0;
  for (uint32_t index = 0; index < checks->report_count; ++index) {
    const struct report *report = &checks->reports[index];
    const bool is_read = !report->is_write || !report->other_is_write;
    const uint32_t read_site = report->is_write ? report->other_site : report->site;
    if (report->kind == RACE && report->with_atomic && is_read && is_compared_read(checks, read_site)) continue;
    checks->reports[count++] = *report;
  }
  *reports = checks->reports;
  return checks->report_count = count;
}

/* Called by the CUDA driver of this package after memory was allocated, or written by a copy or fill. */
void numba_ptxlink_mark_memory(uint64_t address, uint64_t size, int is_initialised) {
  pthread_mutex_lock(&lock);
  const uint64_t end = address + size;
  for (uint64_t at = address; at < end; at = (at / WORD + 1) * WORD) {
    struct cell *cell = cell_at(at);
    if (!cell) break;
    const uint32_t bytes = bytes_in_word(at, end);
    cell->uninitialised = is_initialised ? cell->uninitialised & ~bytes : cell->uninitialised | bytes;
  }
  pthread_mutex_unlock(&lock);
}

static int exit_status;

static void end_with_status(int status, void *unused) {
  (void)unused;
  /* glibc continues with the exit handlers that are left. */
  if (!status && exit_status) exit(exit_status);
}

/* Let the process end with `status` instead of 0; 0 for its own exit status. */
void numba_ptxlink_checks_set_exit_status(int status) {
  static bool registered;
  if (!registered) registered = !on_exit(end_with_status, NULL);
  exit_status = status;
}
