// Sets of indices of one dimension: see index_set.h.

#include "index_set.h"

bool set_push(IndexSet *s, SetFactor minor) {
  SetFactor *last = s->n ? &s->factor[s->n - 1] : NULL;
  if (minor.length == 1) return true;
  if (last && last->stride == minor.length * minor.stride) {
    *last = (SetFactor){last->length * minor.length, minor.stride};
    return true;
  }
  if (s->n == MAX_SET_FACTORS) return false;
  s->factor[s->n++] = minor;
  return true;
}

IndexSet set_interval(int64_t size, int64_t from, int64_t length) {
  IndexSet s = {.size = size, .from = from};
  set_push(&s, (SetFactor){length, 1});
  return s;
}

IndexSet set_all(int64_t size) {
  return set_interval(size, 0, size);
}

int64_t set_length(const IndexSet *s) {
  int64_t n = 1;
  for (int i = 0; i < s->n; i++)
    n *= s->factor[i].length;
  return n;
}

bool set_is_all(const IndexSet *s) {
  return set_length(s) == s->size;
}

bool set_is_interval(const IndexSet *s) {
  return s->from != ANYWHERE && (s->n == 0 || (s->n == 1 && s->factor[0].stride == 1));
}

// The distance of the last element from the first, of factors from `k` on.
static int64_t extent(const IndexSet *s, int k) {
  int64_t n = 0;
  for (int i = k; i < s->n; i++)
    n += (s->factor[i].length - 1) * s->factor[i].stride;
  return n;
}

// Whether the elements are in the dimension, distinct, and in order.
static bool is_set(const IndexSet *s) {
  if (s->from == ANYWHERE) return set_length(s) <= s->size;
  bool is = s->from >= 0 && (set_length(s) == 0 || s->from + extent(s, 0) < s->size);
  for (int i = 0; i < s->n; i++)
    is &= s->factor[i].stride > extent(s, i + 1);
  return is;
}

bool set_product(const IndexSet *major, const IndexSet *minor, IndexSet *out) {
  IndexSet both = {.size = major->size * minor->size};
  bool anywhere = major->from == ANYWHERE || minor->from == ANYWHERE;
  if (major->size == 1 || minor->size == 1) {
    both = major->size == 1 ? *minor : *major;
  } else if (anywhere) {
    // A value that is the same along both is the same along their product.  One that is the same
    // along the major dimension only repeats, so all of it has a place, and a part has none.
    if (!set_is_all(minor)) return false;
    if (major->from == ANYWHERE && minor->from == ANYWHERE)
      both = set_interval(both.size, ANYWHERE, set_length(major) * minor->size);
    else if (set_is_all(major))
      both = set_all(both.size);
    else
      return false;
  } else {
    both.from = major->from * minor->size + minor->from;
    for (int i = 0; i < major->n; i++)
      if (!set_push(&both,
                    (SetFactor){major->factor[i].length, major->factor[i].stride * minor->size}))
        return false;
    for (int i = 0; i < minor->n; i++)
      if (!set_push(&both, minor->factor[i])) return false;
  }
  *out = both;
  return true;
}

bool set_split(const IndexSet *s, int64_t size, IndexSet *major, IndexSet *minor) {
  IndexSet of = *s; // one of the results may replace it
  if (size < 1 || of.size % size) return false;
  if (size == 1 || size == of.size) {
    *major = size == 1 ? of : set_all(1);
    *minor = size == 1 ? set_all(1) : of;
    return true;
  }
  if (of.from == ANYWHERE) {
    if (set_length(&of) % size) return false;
    *major = set_interval(of.size / size, ANYWHERE, set_length(&of) / size);
    *minor = set_interval(size, ANYWHERE, size);
    return true;
  }
  *major = (IndexSet){.size = of.size / size, .from = of.from / size};
  *minor = (IndexSet){.size = size, .from = of.from % size};
  for (int i = 0; i < of.n; i++) {
    SetFactor f = of.factor[i];
    int64_t steps = f.stride < size && size % f.stride == 0 ? size / f.stride : 0;
    bool fits;
    if (f.stride % size == 0)
      fits = set_push(major, (SetFactor){f.length, f.stride / size});
    else if (steps && f.length > steps && f.length % steps == 0) // it is a factor of both
      fits = set_push(major, (SetFactor){f.length / steps, 1}) &&
             set_push(minor, (SetFactor){steps, f.stride});
    else
      fits = set_push(minor, f);
    if (!fits) return false;
  }
  // No sum of minor indices may carry.
  return is_set(minor) && is_set(major);
}

bool set_unify(IndexSet *x, const IndexSet *y) {
  if (set_length(x) != set_length(y) || x->size != y->size) return false;
  // A value that is the same everywhere may be at the other's position.
  if (x->from == ANYWHERE) *x = *y;
  if (y->from == ANYWHERE) return true;
  bool same = x->from == y->from && x->n == y->n;
  for (int i = 0; same && i < x->n; i++)
    same = x->factor[i].length == y->factor[i].length && x->factor[i].stride == y->factor[i].stride;
  return same;
}

bool set_overlaps(const IndexSet *x, const IndexSet *y) {
  IndexSet both = *x;
  if (x->from == ANYWHERE || y->from == ANYWHERE) return false;
  if (set_unify(&both, y)) return true;
  return set_is_interval(x) && set_is_interval(y) && x->from < y->from + set_length(y) &&
         y->from < x->from + set_length(x);
}

static bool same_factor(SetFactor x, SetFactor y) {
  return x.length == y.length && x.stride == y.stride;
}

// Unites `x` with `y`, which follows it along factor `k`; all other factors are equal.
static bool unite_at(IndexSet *x, const IndexSet *y, int k) {
  int64_t apart = y->from - x->from;
  if (x->size != y->size || x->from == ANYWHERE || y->from == ANYWHERE || apart <= 0) return false;
  IndexSet both = {.size = x->size, .from = x->from};
  bool equal = x->n == y->n;
  for (int i = 0; equal && i < x->n; i++)
    equal = same_factor(x->factor[i], y->factor[i]);
  if (equal) {
    // The same box twice: a new factor of length 2.
    for (int i = 0; i <= x->n; i++)
      if ((i == k && !set_push(&both, (SetFactor){2, apart})) ||
          (i < x->n && !set_push(&both, x->factor[i])))
        return false;
  } else {
    // Factor k has another length, or is left out if the length is 1.
    bool lacks_x = x->n < y->n, lacks_y = y->n < x->n;
    int n = lacks_x ? y->n : x->n;
    if (x->n + lacks_x != n || y->n + lacks_y != n) return false;
    for (int i = 0; i < n; i++) {
      SetFactor f = {1, 0}, g = {1, 0};
      if (!lacks_x || i != k) f = x->factor[i - (lacks_x && i > k)];
      if (!lacks_y || i != k) g = y->factor[i - (lacks_y && i > k)];
      if (i != k && !same_factor(f, g)) return false;
      if (i == k) {
        if (!lacks_x && !lacks_y && f.stride != g.stride) return false;
        int64_t length = f.length;
        f = (SetFactor){f.length + g.length, lacks_x ? g.stride : f.stride};
        if (apart != length * f.stride) return false;
      }
      if (!set_push(&both, f)) return false;
    }
  }
  if (!is_set(&both) || set_length(&both) != set_length(x) + set_length(y)) return false;
  *x = both;
  return true;
}

bool set_append(IndexSet *x, const IndexSet *y) {
  int64_t length = set_length(x) + set_length(y);
  if (x->from != ANYWHERE || y->from != ANYWHERE) return unite_at(x, y, 0);
  if (x->size != y->size || length > x->size) return false;
  *x = set_interval(x->size, ANYWHERE, length);
  return true;
}

bool set_unite(IndexSet *x, const IndexSet *y) {
  int n = x->n > y->n ? x->n : y->n;
  for (int k = 0; k <= n; k++) {
    IndexSet after = *y;
    if (unite_at(x, y, k)) return true;
    if (!unite_at(&after, x, k)) continue;
    *x = after;
    return true;
  }
  return false;
}

bool set_embed(IndexSet *s, int64_t at, int64_t size) {
  if (s->from != ANYWHERE) s->from += at;
  s->size = size;
  return is_set(s);
}

bool set_restrict(IndexSet *s, int64_t at, int64_t size) {
  if (s->from != ANYWHERE && s->from < at) return false;
  return set_embed(s, -at, size);
}

void set_text(StrBuf *b, const IndexSet *s) {
  if (s->from == ANYWHERE) {
    strbuf_addf(b, "%lld", (long long)set_length(s));
    return;
  }
  if (s->n == 0) strbuf_addf(b, "%lld:%lld", (long long)s->from, (long long)s->from + 1);
  for (int i = 0; i < s->n; i++) {
    int64_t from = i ? 0 : s->from, stride = s->factor[i].stride;
    strbuf_addf(b, "%s%lld:%lld", i ? "+" : "", (long long)from,
                (long long)(from + s->factor[i].length * stride));
    if (stride != 1) strbuf_addf(b, ":%lld", (long long)stride);
  }
}
