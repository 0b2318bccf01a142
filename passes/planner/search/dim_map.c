// The dimensions of a value in letters of another op: see dim_map.h.

#include "dim_map.h"

int leading_letter(const Factors *f) {
  return f->n ? f->letter[0] : UNKNOWN_LETTER;
}

static bool known(const Factors *f) {
  for (int i = 0; i < f->n; i++)
    if (f->letter[i] != UNKNOWN_LETTER) return true;
  return false;
}

bool letters_known(const Lettered *l) {
  for (int i = 0; i < l->ndim; i++)
    if (known(&l->dim[i])) return true;
  return false;
}

// Factors beyond the capacity count as unknown: no split reaches so far from the front.
static void append(Factors *f, int64_t size, int letter) {
  if (f->n == MAX_FACTORS) return;
  f->size[f->n] = size;
  f->letter[f->n++] = (int8_t)letter;
}

Lettered lettered_of(const Dims *dims, const Term *t) {
  Lettered out;
  out.ndim = t->ndim;
  for (int i = 0; i < t->ndim; i++) {
    out.dim[i].n = 0;
    for (int k = 0; k < t->dim[i].n; k++) {
      int letter = t->dim[i].letter[k];
      if (dims->letter[letter].size > 1) append(&out.dim[i], dims->letter[letter].size, letter);
    }
  }
  return out;
}

// The rest of a list of factors.
typedef struct Front {
  const Factors *list;
  int at;
  int64_t left;  // elements left of the factor at `at`
  bool is_first; // no part of that factor is taken yet
} Front;

static Front front_of(const Factors *list) {
  return (Front){.list = list, .left = list->n ? list->size[0] : 0, .is_first = true};
}

// Moves the factors of the next `size` elements from the front to the end of `to`. If `size` ends
// within a factor, its first part keeps the letter, and the rest is unknown.
static void take(Front *f, int64_t size, Factors *to) {
  while (size > 1 && f->at < f->list->n) {
    int letter = f->is_first ? f->list->letter[f->at] : UNKNOWN_LETTER;
    if (size % f->left == 0) {
      append(to, f->left, letter);
      size /= f->left;
      // The factor is used up: the next one is whole.
      f->at++;
      f->left = f->at < f->list->n ? f->list->size[f->at] : 0;
      f->is_first = true;
    } else if (f->left % size == 0) {
      append(to, size, letter);
      f->left /= size;
      f->is_first = false;
      return;
    } else {
      f->at = f->list->n; // no common boundary from here on
    }
  }
  if (size > 1) append(to, size, UNKNOWN_LETTER);
}

void lettered_learn(Factors *map, const Dims *dims, const Term *t, const Lettered *is) {
  if (t->ndim != is->ndim) return;
  for (int i = 0; i < t->ndim; i++) {
    Front front = front_of(&is->dim[i]);
    for (int k = 0; k < t->dim[i].n; k++) {
      int letter = t->dim[i].letter[k];
      if (dims->letter[letter].size <= 1) continue;
      Factors taken;
      taken.n = 0;
      take(&front, dims->letter[letter].size, &taken);
      if (!known(&map[letter])) map[letter] = taken;
    }
  }
}

Lettered lettered_translate(const Lettered *l, const Factors *map) {
  Lettered out;
  out.ndim = l->ndim;
  for (int i = 0; i < l->ndim; i++) {
    const Factors *from = &l->dim[i];
    out.dim[i].n = 0;
    for (int k = 0; k < from->n; k++) {
      const Factors none = {.n = 0};
      Front front = front_of(from->letter[k] < 0 ? &none : &map[from->letter[k]]);
      take(&front, from->size[k], &out.dim[i]);
    }
  }
  return out;
}
