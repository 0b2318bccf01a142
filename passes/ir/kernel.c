// From a row's `cpu`, `cuda` and `args` columns to one call: see kernel.h.

#include "ir/kernel.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "ir/dims.h"
#include "ir/op.h"

// Whether `word` is one of the words of `list`.
static bool has_word(const char *list, const char *word) {
  size_t n = strlen(word);
  for (const char *p = list; (p = strstr(p, word)) != NULL; p += n)
    if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == 0)) return true;
  return false;
}

// The value that gives the kernel's name its element type: result 0, or operand 0 if the row fixes
// the type of result 0, as for arg_max.  If that type is S, which is f32 for several types: operand
// F.
const Value *kernel_telling(const Op *op) {
  const char *result = strstr(op_info[op->kind].types, "->") + 2;
  result += strspn(result, " ");
  if (*result == 'S') {
    const char *p = op_info[op->kind].types;
    for (int i = 0; i < op->n_in; i++) {
      if (*p == 'F') return op->in[i].value;
      p += strcspn(p, ",") + 1;
      p += strspn(p, " ");
    }
    BUG("'%s' has no operand of type F", op_info[op->kind].name);
  }
  // A fixed type is lower case in the row, unless it is the name of attribute `to`.
  bool fixed = islower((unsigned char)result[0]) && !strstr(op_info[op->kind].types, "-> to");
  return fixed && op->n_in > 0 ? op->in[0].value : op->out[0];
}

static bool is_sum(const Layout *l) {
  bool sum = false;
  for (int i = 0; l && i < l->n_axes; i++)
    sum |= l->axis[i].kind == SBP_P && !l->mesh->axis[i].time;
  return sum;
}

bool move_sums(const Op *move) {
  return is_sum(move->in[0].value->layout) || is_sum(move->out[0]->layout);
}

static bool name_with(const Op *op, Target t, const char *prep, char *buf, size_t n) {
  const OpInfo *info = &op_info[op->kind];
  DType dtype = kernel_telling(op)->type->dtype;
  int length;
  // Kernels are of one block.
  if (attention_blocks(op) > 1) return false;
  // Kernels that only move bytes are named by element size; others by element type.
  if (has_word(info->kernels[t], "b") && !(op->kind == OP_move && move_sums(op)))
    length = snprintf(buf, n, "nnrt_%s%s_b%d", info->name, prep, dtype_bytes[dtype]);
  else if (has_word(info->kernels[t], dtype_name[dtype]))
    length = snprintf(buf, n, "nnrt_%s%s_%s", info->name, prep, dtype_name[dtype]);
  else
    return false;
  if (length < 0 || (size_t)length >= n)
    BUG("no room for the name of a kernel of '%s'", info->name);
  return true;
}

bool kernel_name(const Op *op, Target t, char *buf, size_t n) {
  return name_with(op, t, "", buf, n);
}

bool kernel_prep_name(const Op *op, Target t, char *buf, size_t n) {
  return name_with(op, t, "_prep", buf, n);
}

bool kernel_exists(OpKind kind, Target t, DType dtype) {
  return has_word(op_info[kind].kernels[t], dtype_name[dtype]);
}

bool kernel_variadic(const Op *op) {
  return strstr(op_info[op->kind].types, "...") != NULL;
}

static KernelArg int_arg(int64_t i) {
  return (KernelArg){.kind = ARG_int, .i = i};
}

// The attribute if the row has it: `axes` of "axes:I keep:b".
static const Attr *find_attr(const Op *op, const char *name) {
  const char *attrs = op_info[op->kind].attrs;
  size_t n = strlen(name);
  for (const char *p = attrs; (p = strstr(p, name)) != NULL; p += n)
    if ((p == attrs || p[-1] == ' ') && p[n] == ':') return op_attr(op, name);
  return NULL;
}

static KernelArg attr_arg(const Attr *attr) {
  switch (attr->kind) {
  case 'i': return int_arg(attr->i);
  case 'b': return (KernelArg){.kind = ARG_bool, .i = attr->i};
  case 'f': return (KernelArg){.kind = ARG_float, .f = attr->f};
  case 's': return (KernelArg){.kind = ARG_str, .s = attr->s};
  // An empty list is NULL in generated code.
  case 'I':
    return (KernelArg){
        .kind = ARG_list, .n = attr->list.n, .list = attr->list.n ? attr->list.at : NULL};
  }
  BUG("a kernel cannot take attribute '%s'", attr->name);
}

// The size of a letter of the einsum, or of `*`: the product of its letters, which are digits.
static KernelArg letter_arg(const Op *op, const Dims *dims, char letter) {
  int64_t size = 1;
  bool found = letter == '*';
  for (int i = 0; i < dims->n_letters; i++)
    // A star is the product of all its dimensions.
    if (letter == '*' ? isdigit((unsigned char)dims->letter[i].name) != 0
                      : dims->letter[i].name == letter) {
      size *= dims->letter[i].size;
      found = true;
    }
  if (!found) BUG("the args of '%s' name '%c', which is nothing", op_info[op->kind].name, letter);
  return int_arg(size);
}

static KernelArg word_arg(const Op *op, const Dims *dims, const char *word, Arena *a) {
  const char *name = op_info[op->kind].name;
  size_t n = strlen(word);
  // An attribute, or as `axes_n` the length of a list.
  const Attr *attr = find_attr(op, word);
  if (attr) return attr_arg(attr);
  if (n > 2 && str_ends(word, "_n")) return int_arg(attr_n(op, str_copy_n(a, word, n - 2)));
  // `v_from` and `v_all`: for letter v, the start of the local shard, and the global length.
  if (str_equal(word + 1, "_from") || str_equal(word + 1, "_all")) {
    const Value *boxed = op_boxed(op);
    if (!boxed) BUG("the args of '%s' say '%s', but no trait whose", name, word);
    const Term *term = boxed->def == op ? &dims->out[0] : &dims->in[0];
    int dim = dims_position(dims, term, dims_find(dims, word[0]));
    if (dim < 0) BUG("the args of '%s' say '%s', which is nowhere", name, word);
    return (KernelArg){.kind = str_ends(word, "_from") ? ARG_from : ARG_all, .i = dim};
  }
  // `i2` the shape of operand 2, `p0` the number of dimensions of result 0, `w1` the bytes of an
  // element of operand 1, and so on.  An absent optional operand has no dimensions.
  if (n == 2 && strchr("iorpw", word[0]) && isdigit((unsigned char)word[1])) {
    int i = word[1] - '0';
    const Type *t = NULL;
    if (word[0] == 'o' || word[0] == 'p')
      t = op->out[i]->type;
    else if (i < op->n_in)
      t = op->in[i].value->type;
    if (word[0] == 'r' || word[0] == 'p') return int_arg(t ? t->ndim : 0);
    if (word[0] == 'w') return int_arg(t ? dtype_bytes[t->dtype] : 0);
    return t ? (KernelArg){.kind = ARG_list, .n = t->ndim, .list = t->dim}
             : (KernelArg){.kind = ARG_list};
  }
  // The ranks of a collective.
  if (str_equal(word, "ranks")) {
    KernelArg ranks = {.kind = ARG_ranks};
    if (!op_axes(op, &ranks.axes, NULL))
      BUG("'%s' is over axis '%s', which the mesh lacks", name, attr_s(op, "axis"));
    return ranks;
  }
  if (str_equal(word, "box")) return (KernelArg){.kind = ARG_box};
  // The length of each operand along the axis (concat), or its number of elements (pack).
  if (str_equal(word, "sizes")) {
    int64_t *sizes = arena_array(a, int64_t, op->n_in);
    const Attr *axis = find_attr(op, "axis");
    for (int i = 0; i < op->n_in; i++) {
      const Type *t = op->in[i].value->type;
      sizes[i] = axis ? t->dim[axis->i] : type_count(t);
    }
    return (KernelArg){.kind = ARG_list, .n = op->n_in, .list = sizes};
  }
  // The number of operands, or else the size of a letter of the einsum.
  if (str_equal(word, "n") && kernel_variadic(op)) return int_arg(op->n_in);
  if (n == 1) return letter_arg(op, dims, word[0]);
  BUG("the args of '%s' say '%s', which is nothing", name, word);
}

// "NnrtAdam{beta1 eps}": each word in the braces names an attribute and the field for it.
static KernelArg struct_arg(const Op *op, const char *words, size_t length, Arena *a) {
  size_t name = strcspn(words, "{");
  KernelArg *fields = arena_array(a, KernelArg, MAX_KERNEL_ARGS);
  int n = 0;
  for (const char *p = words + name + 1, *end = words + length - 1; p < end;) {
    size_t size = strcspn(p, " }");
    const char *word = str_copy_n(a, p, size);
    const Attr *attr = find_attr(op, word);
    // Numbers and bools: fields whose size is their alignment.
    if (!attr || !strchr("ifb", attr->kind))
      BUG("the args of '%s' say '%s' in a struct, which is no number", op_info[op->kind].name,
          word);
    if (n == MAX_KERNEL_ARGS) BUG("a struct of '%s' has no room", op_info[op->kind].name);
    fields[n] = attr_arg(attr);
    fields[n++].name = attr->name;
    p += size + 1;
  }
  return (KernelArg){.kind = ARG_struct, .s = str_copy_n(a, words, name), .n = n, .field = fields};
}

const void *kernel_struct(const KernelArg *arg, Arena *a) {
  char *bytes = arena_array(a, char, arg->n * 8);
  size_t at = 0;
  for (int i = 0; i < arg->n; i++) {
    const KernelArg *field = &arg->field[i];
    const bool flag = field->i != 0;
    const void *from = field->kind == ARG_float  ? (const void *)&field->f
                       : field->kind == ARG_bool ? (const void *)&flag
                                                 : (const void *)&field->i;
    size_t size = field->kind == ARG_bool ? sizeof flag : sizeof(int64_t);
    at = (at + size - 1) / size * size;
    memcpy(bytes + at, from, size);
    at += size;
  }
  return bytes;
}

int kernel_args(const Op *op, KernelArg *args, int max, Arena *a) {
  const Dims *dims = op_dims_kept(op, a, NULL);
  if (!dims) BUG("'%s' has no einsum", op_info[op->kind].name);
  int n = 0;
  // One argument for each word of the row's column.
  for (const char *p = op_info[op->kind].args; *p;) {
    p += strspn(p, " ");
    size_t length = strcspn(p, " {");
    if (!length) break;
    if (n == max) BUG("a kernel of '%s' takes more than %d arguments", op_info[op->kind].name, max);
    // A struct's words are in braces.
    bool group = p[length] == '{';
    if (group) length = strcspn(p, "}") + 1;
    args[n++] =
        group ? struct_arg(op, p, length, a) : word_arg(op, dims, str_copy_n(a, p, length), a);
    p += length;
  }
  return n;
}
