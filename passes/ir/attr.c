// Attributes: the specs in the rows of ops.def, and the attributes of ops.

#include <stddef.h>
#include <string.h>

#include "base/shared_bytes.h"
#include "ir/intern.h"
#include "ir/op.h"

static const Attr *find(const Op *op, const char *name) {
  int n;
  const AttrSpec *spec = op_attr_specs(op->kind, &n);
  // Equal literals mostly are one string of the program.
  for (int i = 0; i < n; i++)
    if (spec[i].name == name) return &op->attrs[i];
  for (int i = 0; i < n; i++)
    if (str_equal(spec[i].name, name)) return &op->attrs[i];
  return NULL;
}

bool op_has_attr(const Op *op, const char *name) {
  return find(op, name) != NULL;
}

const Attr *op_attr(const Op *op, const char *name) {
  const Attr *a = find(op, name);
  if (!a) BUG("%s has no attribute '%s'", op_info[op->kind].name, name);
  return a;
}

static const Attr *of_kind(const Op *op, const char *name, const char *kinds) {
  const Attr *a = op_attr(op, name);
  if (!strchr(kinds, a->kind))
    BUG("attribute '%s' of %s is of kind %c", name, op_info[op->kind].name, a->kind);
  return a;
}

int64_t attr_i(const Op *op, const char *name) {
  return of_kind(op, name, "ib")->i;
}
double attr_f(const Op *op, const char *name) {
  return of_kind(op, name, "f")->f;
}
const char *attr_s(const Op *op, const char *name) {
  return of_kind(op, name, "s")->s;
}
DType attr_t(const Op *op, const char *name) {
  return of_kind(op, name, "t")->t;
}
int attr_n(const Op *op, const char *name) {
  return of_kind(op, name, "I")->list.n;
}
const int64_t *attr_list(const Op *op, const char *name) {
  return of_kind(op, name, "I")->list.at;
}

// Eight bytes at a time: constants may have megabytes.
static uint64_t mix_bytes(uint64_t h, const void *at, size_t n) {
  const unsigned char *bytes = at;
  size_t i = 0;
  for (uint64_t word; i + sizeof word <= n; i += sizeof word) {
    memcpy(&word, bytes + i, sizeof word);
    h = hash_mix(h, word);
    h ^= h >> 32;
  }
  // The last bytes, one by one.
  for (; i < n; i++)
    h = (h ^ bytes[i]) * 0x100000001b3u;
  return h;
}

uint64_t attr_hash(uint64_t h, const Attr *a) {
  switch (a->kind) {
  // All bytes of the contents count, as in attr_same.
  case 's': return mix_bytes(h, a->s, strlen(a->s));
  case 'I': return mix_bytes(h, a->list.at, (size_t)a->list.n * sizeof *a->list.at);
  case 'd': return mix_bytes(h, a->data.at, (size_t)a->data.n);
  case 'f': return mix_bytes(h, &a->f, sizeof a->f);
  case 't': return hash_mix(h, (uint64_t)a->t);
  }
  return hash_mix(h, (uint64_t)a->i);
}

uint64_t attr_bucket(uint64_t h, const Attr *a) {
  enum { FEW_BYTES = 4096, WORDS = 64 };
  if (a->kind != 'd' || a->data.n <= FEW_BYTES) return attr_hash(h, a);
  // Words at equal distances from the first bytes to the last.
  const char *bytes = a->data.at;
  int64_t step = a->data.n / WORDS;
  h = hash_mix(h, (uint64_t)a->data.n);
  for (int64_t i = 0; i <= a->data.n - 8; i += step)
    h = mix_bytes(h, bytes + i, 8);
  return mix_bytes(h, bytes + a->data.n - 8, 8);
}

bool attr_same(const Attr *a, const Attr *b) {
  switch (a->kind) {
  case 's': return str_equal(a->s, b->s);
  // Contents are compared, not pointers.
  case 'I':
    return a->list.n == b->list.n &&
           (a->list.n == 0 ||
            memcmp(a->list.at, b->list.at, (size_t)a->list.n * sizeof *a->list.at) == 0);
  case 'd':
    return a->data.n == b->data.n && (a->data.n == 0 || a->data.at == b->data.at ||
                                      memcmp(a->data.at, b->data.at, (size_t)a->data.n) == 0);
  case 'f': return memcmp(&a->f, &b->f, sizeof a->f) == 0; // 0 and -0 differ
  case 't': return a->t == b->t;
  }
  return a->i == b->i;
}

bool op_same_attrs(const Op *a, const Op *b) {
  int n;
  op_attr_specs(a->kind, &n);
  // Equal lists of one module are one; those of two modules are compared.
  for (int i = 0; i < n && a->attrs != b->attrs; i++)
    if (!attr_same(&a->attrs[i], &b->attrs[i])) return false;
  return true;
}

// -- Interned lists --------------------------------------------------------------------------

enum { LARGE_BYTES = 1 << 16 };

static void copy_contents(Arena *a, Attr *attr) {
  switch (attr->kind) {
  case 's': attr->s = str_copy(a, attr->s); break;
  case 'd':
    // Large constants are the same bytes in all copies of a model.
    if (attr->shared)
      shared_keep(a, attr->data.at);
    else if ((attr->shared = attr->data.n >= LARGE_BYTES))
      attr->data.at = shared_copy(a, attr->data.at, (size_t)attr->data.n);
    else
      attr->data.at = arena_copy(a, attr->data.at, (size_t)attr->data.n);
    break;
  case 'I':
    attr->list.at = arena_copy(a, attr->list.at, (size_t)attr->list.n * sizeof *attr->list.at);
    break;
  }
}

const Attr *attrs_interned(Module *m, OpKind kind, const Attr *attrs) {
  int n;
  const AttrSpec *spec = op_attr_specs(kind, &n);
  uint64_t hash = hash_mix(0, (uint64_t)kind + 1);
  for (int i = 0; i < n; i++)
    hash = attr_bucket(hash ^ hash >> 32, &attrs[i]);
  hash = hash_mix(hash ^ hash >> 32, 0);
  InternedAttrs **bucket = &m->interned->attrs[hash >> 32 & (N_BUCKETS - 1)];
  for (InternedAttrs *known = *bucket; known; known = known->next) {
    bool same = known->hash == hash && known->kind == kind;
    for (int i = 0; same && i < n; i++)
      same = attr_same(&known->at[i], &attrs[i]);
    if (same) return known->at;
  }
  // Not known yet: the list with contents of its own.
  InternedAttrs *list = arena_alloc(m->arena, sizeof *list + (size_t)n * sizeof *list->at);
  *list = (InternedAttrs){.hash = hash, .kind = kind, .next = *bucket};
  for (int i = 0; i < n; i++) {
    list->at[i] = attrs[i];
    list->at[i].name = spec[i].name; // the only names that are compared by address
    copy_contents(m->arena, &list->at[i]);
  }
  *bucket = list;
  return list->at;
}

void op_set_attr(Op *op, Attr attr) {
  int n;
  op_attr_specs(op->kind, &n);
  // The kinds must agree.
  ptrdiff_t at = of_kind(op, attr.name, (char[]){attr.kind, 0}) - op->attrs;
  Attr changed[MAX_ATTRS];
  for (int i = 0; i < n; i++)
    changed[i] = i == at ? attr : op->attrs[i];
  op->attrs = attrs_interned(op->graph->module, op->kind, changed);
}
