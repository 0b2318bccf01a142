// The text as a list of macros, functions and tables: every line of program.c and its other files
// is one of these, or part of one, and every name is defined once.
//
//     #define X ((float *)(r->slab + 704)) // f32[2,4] x         a macro: a place
//     static void train_micro(NnrtRank *r) {…}                   a function
//     static int fused_0(float *y0, const float *x0) {…}         a fused body
//     static const NnrtTensor train_tensors[] = {…};             a table
//
// In a program of several files (backend/pieces.c), program.h has the macros and declares the
// functions that program.c calls in others, which are not static.
//
// A line of any other form is a mismatch: conditional text, a second header, a global variable.

#include <string.h>

#include "check.h"

// Whether a macro of this name would change the meaning of other text.
static bool is_taken(const CToken *name) {
  static const char *const words[] = {"RUN",      "PREPARE",   "LIST",    "NULL",    "NAN",
                                      "INFINITY", "INT64_MIN", "INT64_C", "UINT64_C"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (ctoken_is(name, words[i])) return true;
  if (name->n >= 5 && !memcmp(name->at, "NNRT_", 5)) return true;
  // Generated names of macros are in capitals, and no others are.
  for (int i = 0; i < name->n; i++)
    if (name->at[i] >= 'a' && name->at[i] <= 'z') return true;
  return false;
}

static bool read_macro(Check *c, Cursor *at) {
  const Cursor before = *at;
  MacroPlace *p = arena_one(c->arena, MacroPlace);
  CToken name, type, where;
  if (!take(at, "#define %w", &name) || is_taken(&name))
    return mismatch(c, &before, "no place of a value has such a macro");
  *p = (MacroPlace){0};
  if (take(at, "((%w *)(r->%w +", &type, &where)) {
    const Cursor offset = *at;
    if (!take(at, "%i", &p->offset) && !loop_number_read(at, &p->number))
      return mismatch(c, &offset, "no place of a value has such a macro");
    // A value of several slices has the slot of the current one.
    bool slots = take(at, "+ r->micro %% %i * INT64_C(%i)", &p->slots, &p->stride);
    bool host = ctoken_is(&where, "host");
    if ((!host && !ctoken_is(&where, "slab")) || !take(at, "))") || (slots && p->slots < 2))
      return mismatch(c, &before, "no place of a value has such a macro");
    p->kind = host ? PLACE_host : PLACE_slab;
    p->ctype = ctoken_text(&type, c->arena);
  } else if (take(at, "((const %w *)r->constant[%i])", &type, &p->offset)) {
    p->kind = PLACE_constant;
    p->ctype = ctoken_text(&type, c->arena);
  } else if (take(at, "(r->prep[%i])", &p->offset)) {
    p->kind = PLACE_prep;
    c->prep_macros++;
  } else
    return mismatch(c, &before, "no place of a value has such a macro");
  if (p->offset < 0) return mismatch(c, &before, "no place of a value has such a macro");
  // A macro is one line, and the next line is not part of it.
  CToken next = cursor_peek(at);
  if (at->line != cursor_peek(&before).line || next.line == at->line)
    return mismatch(c, &before, "no place of a value has such a macro");
  return !table_add(c->names, NAME_macro, ctoken_text(&name, c->arena), p) ||
         mismatch(c, &before, "a second macro of this name");
}

static bool add_unit(Check *c, UnitKind kind, const CToken *name, const char *type, Cursor at,
                     int64_t length) {
  Unit *u = arena_one(c->arena, Unit);
  *u = (Unit){.kind = kind, .name = ctoken_text(name, c->arena), .at = at, .length = length};
  u->type = type;
  vec_push(c->arena, &c->units, u);
  return !table_add(c->names, NAME_unit, u->name, u) ||
         mismatch(c, &at, "a second definition of '%s'", u->name);
}

// A table, after its name and length: from `=` to the semicolon.
static bool read_table(Check *c, Cursor *at, const CToken *name, const char *type, int64_t length) {
  if (!want(c, at, "= {") || !add_unit(c, UNIT_table, name, type, *at, length)) return false;
  return (take_block(at) && take(at, ";")) ||
         mismatch(c, at, "the table '%s' does not end", ctoken_text(name, c->arena));
}

// A table that a function fills: it is empty so far.
static bool add_filled(Check *c, const CToken *name, const char *type, const Cursor *at,
                       int64_t length) {
  if (!add_unit(c, UNIT_table, name, type, *at, length)) return false;
  c->units.at[c->units.n - 1]->filled = true;
  return true;
}

// A constant that the assembler includes.
static bool read_external(Check *c, Cursor *at, const char *text) {
  CToken type, name;
  const Cursor before = *at;
  if (!take(at, "extern const %w %w[] __attribute__((visibility(\"hidden\")));", &type, &name))
    return unexpected(c, at, "the declaration of a constant");
  const char *element = ctoken_text(&type, c->arena);
  if (!add_unit(c, UNIT_external, &name, element, before, -1)) return false;
  c->units.at[c->units.n - 1]->text = text;
  return true;
}

static bool read_function(Check *c, Cursor *at, UnitKind kind, const CToken *name,
                          const char *type) {
  if (!add_unit(c, kind, name, type, *at, -1)) return false;
  // Parameters have no braces.
  for (CToken t; t = cursor_next(at), !ctoken_is(&t, "{");)
    if (t.kind == C_end || t.kind == C_bad || ctoken_is(&t, ";"))
      return mismatch(c, at, "'%s' has no body", ctoken_text(name, c->arena));
  return take_block(at) || mismatch(c, at, "'%s' does not end", ctoken_text(name, c->arena));
}

// The declaration of a function of another file.  Of a fused body, parameters are pointers, of any
// type and name, and nothing renames the function.
static bool read_declaration(Check *c, Cursor *at, const CToken *function) {
  CToken type, name;
  if (table_add(c->names, NAME_declared, ctoken_text(function, c->arena), c))
    return mismatch(c, at, "a second declaration of '%s'", ctoken_text(function, c->arena));
  if (take(at, "void);") || take(at, "NnrtRank *r);")) return true;
  do {
    take(at, "const");
    if (!take(at, "%w *%w", &type, &name)) return unexpected(c, at, "a parameter");
  } while (take(at, ","));
  return want(c, at, ");");
}

static bool read_program_unit(Check *c, Cursor *at) {
  CToken name, type, next = cursor_peek(at);
  const char *text;
  int64_t length = -1;
  if (ctoken_is(&next, "#") && !c->divided) return read_macro(c, at);
  if (take(at, "static void (*const %w[])(NnrtRank *r)", &name))
    return read_table(c, at, &name, TYPE_function, -1);
  if (take(at, "static void %w", &name) || take(at, "NNRT_ONCE static void %w", &name))
    return read_function(c, at, UNIT_function, &name, NULL);
  if (take(at, "NNRT_CLONES static void %w", &name))
    return read_function(c, at, UNIT_leaf, &name, NULL);
  if (take(at, "static int %w", &name)) return read_function(c, at, UNIT_fused, &name, NULL);
  if (c->target == TARGET_cuda && !c->divided && take(at, "int %w(", &name))
    return read_declaration(c, at, &name);
  if (take(at, "static const char *const %w[]", &name))
    return read_table(c, at, &name, TYPE_text, -1);
  if (take(at, "static const %w %w[]", &type, &name) ||
      take(at, "static const %w %w[%i]", &type, &name, &length) ||
      take(at, "const %w %w", &type, &name))
    return read_table(c, at, &name, ctoken_text(&type, c->arena), length);
  if (take(at, "static const char *%w[%i];", &name, &length))
    return add_filled(c, &name, TYPE_text, at, length);
  if (take(at, "static %w %w[%i];", &type, &name, &length))
    return add_filled(c, &name, ctoken_text(&type, c->arena), at, length);
  if (take(at, "__asm__(%s);", &text)) return read_external(c, at, text);
  return unexpected(c, at, "a macro, a function or a table");
}

// program.h
static bool read_header_unit(Check *c, Cursor *at) {
  CToken name, next = cursor_peek(at);
  if (ctoken_is(&next, "#")) return read_macro(c, at);
  if (take(at, "void %w(", &name) || take(at, "int %w(", &name))
    return read_declaration(c, at, &name);
  return unexpected(c, at, "a macro or a declaration");
}

// calls_K.c
static bool read_calls_unit(Check *c, Cursor *at) {
  CToken name;
  if (take(at, "void %w", &name)) return read_function(c, at, UNIT_function, &name, NULL);
  return unexpected(c, at, "a function");
}

// kernels_K.c
static bool read_c_kernel_unit(Check *c, Cursor *at) {
  CToken name;
  if (take(at, "NNRT_CLONES static void %w", &name))
    return read_function(c, at, UNIT_leaf, &name, NULL);
  if (take(at, "int %w", &name)) return read_function(c, at, UNIT_fused, &name, NULL);
  return unexpected(c, at, "a kernel");
}

// kernels.cu: functions of templates, kernels, and functions that program.c calls.
static bool read_kernel_unit(Check *c, Cursor *at) {
  CToken name, type;
  if (take(at, "extern \"C\" int %w", &name)) return read_function(c, at, UNIT_fused, &name, NULL);
  if (take(at, "template <int n> static __device__ inline void %w", &name))
    return read_function(c, at, UNIT_leaf, &name, TYPE_points);
  if (take(at, "static __device__ inline %w %w", &type, &name))
    return read_function(c, at, UNIT_leaf, &name, ctoken_text(&type, c->arena));
  if (take(at, "static __global__ void %w", &name))
    return read_function(c, at, UNIT_leaf, &name, TYPE_kernel);
  return unexpected(c, at, "a kernel");
}

// Whether the tokens from `begin` to `at` are a line of the text: a C compiler ignores its rest.
static bool is_line(const Cursor *begin, const Cursor *at) {
  return at->line == cursor_peek(begin).line && cursor_peek(at).line != at->line;
}

static bool read_all(Check *c, const CFile *file, const char *header, bool hidden,
                     bool (*read)(Check *c, Cursor *at)) {
  Cursor at = cursor_of(file);
  Cursor begin = at;
  const char *name;
  if (!take(&at, "#include %s", &name) || !str_equal(name, header))
    return unexpected(c, &begin, str_format(c->arena, "#include \"%s\"", header));
  if (!is_line(&begin, &at))
    return mismatch(c, &begin, "the line has more than the name of the header");
  begin = at;
  if (hidden && !want(c, &at, "#pragma GCC visibility push(hidden)")) return false;
  if (hidden && !is_line(&begin, &at))
    return mismatch(c, &begin, "the line has more than the pragma");
  for (CToken t; t = cursor_peek(&at), t.kind != C_end;)
    if (!read(c, &at)) return false;
  return true;
}

bool units_read(Check *c) {
  // The header and the reader of each kind of file.
  static const struct {
    const char *header;
    bool hidden; // from libraries
    bool (*read)(Check *c, Cursor *at);
  } kinds[] = {
      [FILE_header] = {"nnrt.h", true, read_header_unit},
      [FILE_calls] = {"program.h", false, read_calls_unit},
      [FILE_kernels] = {"nnrt.h", true, read_c_kernel_unit},
      [FILE_device] = {"cuda/fused.cuh", false, read_kernel_unit},
  };
  if (!read_all(c, &c->program, c->divided ? "program.h" : "nnrt.h", false, read_program_unit))
    return false;
  for (int i = 0; i < c->files.n; i++) {
    FileKind kind = c->files.at[i]->kind;
    if (!read_all(c, &c->files.at[i]->text, kinds[kind].header, kinds[kind].hidden,
                  kinds[kind].read))
      return false;
  }
  return true;
}

Unit *unit_find(Check *c, const Cursor *at, const char *name, UnitKind kind) {
  Unit *u = table_find(c->names, NAME_unit, name);
  if (u && u->kind == kind) {
    u->used = true;
    return u;
  }
  mismatch(c, at, "'%s' is not defined as such", name);
  return NULL;
}

Unit *unit_find_typed(Check *c, const Cursor *at, const char *name, UnitKind kind,
                      const char *type) {
  Unit *u = unit_find(c, at, name, kind);
  if (!u) return NULL;
  if (!str_equal(u->type, type)) {
    mismatch(c, &u->at, "'%s' is of %s, not of %s", name, u->type ? u->type : "no type", type);
    return NULL;
  }
  // A table has the length of its list, so that nothing follows that no reader sees.
  if (u->length < 0) return u;
  mismatch(c, &u->at, "'%s' has a length of its own", name);
  return NULL;
}

MacroPlace *macro_find(const Check *c, const CToken *name) {
  char text[128];
  if (name->kind != C_name || name->n >= (int)sizeof text) return NULL;
  memcpy(text, name->at, (size_t)name->n);
  text[name->n] = 0;
  return table_find(c->names, NAME_macro, text);
}

MacroPlace *place_find(const Check *c, const CToken *name) {
  MacroPlace *p = macro_find(c, name);
  return p && p->number.kind == NUMBER_plain ? p : NULL;
}
