// The function at an address, for signal handlers; see signal_safe.h.
//
// The linker's list of loaded objects is read without its lock, which a thread that hangs in a
// library's constructor has.  Objects are added at the end of the list, so what is read is whole,
// but for an object that is unloaded at the same time.

#include <elf.h>
#include <link.h>

#include "signal_safe.h"

// The tables of an object, by its dynamic section.
typedef struct Tables {
  const ElfW(Sym) * symbol;
  const char *name;
  const uint32_t *gnu_hash; // NULL: none
  const ElfW(Word) * hash;  // NULL: none
} Tables;

// The linker has made addresses of offsets, except for objects that it may not write.
static const void *table_at(const struct link_map *m, ElfW(Addr) at) {
  return (const void *)(at < m->l_addr ? m->l_addr + at : at); // NOLINT
}

static Tables tables_of(const struct link_map *m) {
  Tables t = {0};
  for (const ElfW(Dyn) *d = m->l_ld; d && d->d_tag != DT_NULL; d++) {
    if (d->d_tag == DT_SYMTAB) t.symbol = table_at(m, d->d_un.d_ptr);
    if (d->d_tag == DT_STRTAB) t.name = table_at(m, d->d_un.d_ptr);
    if (d->d_tag == DT_GNU_HASH) t.gnu_hash = table_at(m, d->d_un.d_ptr);
    if (d->d_tag == DT_HASH) t.hash = table_at(m, d->d_un.d_ptr);
  }
  return t;
}

// Returns the number of symbols.  The table of symbols has no length; tables of hashes have one, or
// chains that each end with an odd value.
static uint32_t count_symbols(const Tables *t) {
  if (t->hash) return t->hash[1];
  if (!t->gnu_hash) return 0;
  uint32_t n_buckets = t->gnu_hash[0], first = t->gnu_hash[1], n_bloom = t->gnu_hash[2], last = 0;
  const uint32_t *bucket = t->gnu_hash + 4 + n_bloom * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t *chain = bucket + n_buckets;
  for (uint32_t i = 0; i < n_buckets; i++)
    if (bucket[i] > last) last = bucket[i];
  if (last < first) return first;
  while (!(chain[last - first] & 1))
    last++;
  return last + 1;
}

const char *nnrt_function_at(uintptr_t at, uintptr_t *out_begin) {
  for (const struct link_map *m = _r_debug.r_map; m; m = m->l_next) {
    Tables t = tables_of(m);
    if (!t.symbol || !t.name || at < m->l_addr) continue;
    for (uint32_t i = 0, n = count_symbols(&t); i < n; i++) {
      const ElfW(Sym) *s = &t.symbol[i];
      int kind = s->st_info & 15;
      if ((kind != STT_FUNC && kind != STT_GNU_IFUNC) || s->st_shndx == SHN_UNDEF) continue;
      if (at - m->l_addr < s->st_value || at - m->l_addr >= s->st_value + s->st_size) continue;
      *out_begin = m->l_addr + s->st_value;
      return t.name + s->st_name;
    }
  }
  return NULL;
}
