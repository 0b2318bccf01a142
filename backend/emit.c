// Writes a planned module as C: program.c and its data.
//
//     // Made by nnaot from mlp.onnx; edits are lost.
//     #include "nnrt.h"
//
//     #define X ((float *)(r->slab + 26752)) // f32[32,64] x
//     …                                          offsets of values in one slab
//     static const float constant_0[2] = {…};    constants
//     static void prepare(NnrtRank *r) {…}       one-time preparation of kernels
//     static int fused_0(float *y0, …) {…}       fused bodies
//     static void train_begin(NnrtRank *r) {…}   once per step, if there is something to do
//     static void train_micro(NnrtRank *r) {     one call per op, for every micro-batch; with a
//       RUN(0, nnrt_linear_f32(P0, Y, X, W));    schedule, a function for each segment
//     }
//     static void train_update(NnrtRank *r) {…}  once per step
//     static void train_deferred_0(NnrtRank *r) {…}  deferred updates for the next step, if any
//     const NnrtProgram nnrt_program = {…};      tables for the runtime
//
// It includes the runtime's nnrt.h and nothing else, and it compiles without warnings.

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "ir/verify/verify_schedule.h"
#include "target.h"
#include "validate/validate.h"

enum { COMMENT_COLUMN = 72 };

// "train_micro"; if there are several rank programs, "train_s0_micro".
const char *function_name(Arena *a, const char *of, const Code *code, const char *part) {
  return code->name ? str_format(a, "%s_%s%s%s", of, code->name, *part ? "_" : "", part)
                    : str_format(a, "%s%s%s", of, *part ? "_" : "", part);
}

void calls_text(StrBuf *out, Arena *a, const char *linkage, const char *function,
                const CallList *list) {
  const Call *calls = list->at;
  int n = list->n;
  strbuf_addf(out, "%svoid %s(NnrtRank *r) {\n", linkage, function);
  if (n == 0) strbuf_add(out, "  (void)r;\n");
  for (int i = 0; i < n; i++) {
    strbuf_addf(out, "  %s", calls[i].text);
    // Comments begin in one column.
    int width = (int)strlen(calls[i].text) + 2;
    if (calls[i].comment)
      strbuf_addf(out, "%*s // %s", width < COMMENT_COLUMN ? COMMENT_COLUMN - width : 0, "",
                  c_comment(a, calls[i].comment));
    strbuf_add(out, "\n");
  }
  strbuf_add(out, "}\n\n");
}

// A function, with its calls or with its parts, which are in other files.
static void emit_calls(Program *p, StrBuf *out, const char *function, const CallList *list) {
  int end = pieces_part_end(p, list, 0);
  if (end == list->n) {
    calls_text(out, p->arena, "static ", function, list);
    return;
  }
  strbuf_addf(out, "static void %s(NnrtRank *r) {\n", function);
  for (int from = 0, number = 0; from < list->n; from = end) {
    end = pieces_part_end(p, list, from);
    strbuf_addf(out, "  %s(r);\n", pieces_part(p, function, number++, list, from, end));
  }
  strbuf_add(out, "}\n\n");
}

static void emit_code(Program *p, StrBuf *out, int c) {
  const Code *code = &p->code.at[c];
  const GraphCode *graphs[] = {&p->train, &p->eval};
  // With one rank program there is no need to name its ranks.
  if (code->who) strbuf_addf(out, "// -- Ranks %s\n\n", code->who);
  for (int i = 0; i < 2; i++) {
    const GraphCode *g = graphs[i];
    if (!g->g) continue;
    const Calls *calls = &g->calls[c];
    if (calls->begin.n)
      emit_calls(p, out, function_name(p->arena, g->name, code, "begin"), &calls->begin);
    for (int k = 0; k < calls->part.n; k++) {
      // A part waits for its moves, runs its segment, and starts moves.
      Arena *a = p->arena;
      const LoopPart *part = &calls->part.at[k];
      if (part->wait.n) emit_calls(p, out, str_format(a, "%s_wait", part->function), &part->wait);
      if (!part->action.get) emit_calls(p, out, part->function, &part->run);
      if (part->start.n)
        emit_calls(p, out, str_format(a, "%s_start", part->function), &part->start);
    }
    emit_calls(p, out, function_name(p->arena, g->name, code, "update"), &calls->update);
    for (int k = 0; k < calls->deferred.n; k++)
      emit_calls(p, out, str_format(p->arena, "train_deferred_%d", k), &calls->deferred.at[k]);
  }
}

void section_text(StrBuf *out, const char *title, const StrBuf *text) {
  if (!text->n) return;
  strbuf_addf(out, "// -- %s\n\n%s\n", title, text->at);
}

// The head of program.c.
static void emit_head(const Program *p, StrBuf *out) {
  const char *source = p->m->source ? p->m->source : "text", *slash = strrchr(source, '/');
  strbuf_addf(out, "// Made by nnaot from %s; edits are lost.\n",
              c_comment(p->arena, slash ? slash + 1 : source));
  // The commands that build the executable with its payload (payload.c).
  const char *commands = backend_commands(p->o, p->sources, p->arena);
  if (*commands)
    strbuf_addf(out,
                "// In this folder, these make the executable `program` of it:\n//\n"
                "%s"
                "//   ./program --append payload.bin\n",
                commands);
  strbuf_addf(out, "\n#include \"%s\"\n\n", p->divided ? "program.h" : "nnrt.h");
}

static void emit_program(Program *p, StrBuf *out) {
  // Macros and constants come before the functions that use them.
  if (!p->divided) section_text(out, "Where values are", &p->defines);
  section_text(out, "Constants", &p->constants);
  section_text(out, "Sizes of tensors of a launch", &p->sizes);
  // Prepared kernels have a number, and each rank program prepares its own.
  StrBuf *macros = p->divided ? &p->defines : out;
  if (p->divided && p->prep.n) strbuf_add(macros, "\n");
  for (int i = 0; i < p->prep.n; i++)
    strbuf_addf(macros, "#define P%d (r->prep[%d])\n", i, i);
  if (!p->divided && p->prep.n) strbuf_add(macros, "\n");
  for (int c = 0; c < p->code.n; c++) {
    // Errors of a preparation name the graph of its op.
    strbuf_addf(out, "static void %s(NnrtRank *r) {\n",
                function_name(p->arena, "prepare", &p->code.at[c], ""));
    const char *graph = NULL;
    for (int i = 0; i < p->prep.n; i++) {
      const Prep *prep = &p->prep.at[i];
      if (!prep->runs[c]) continue;
      if (!str_equal(graph, prep->graph))
        strbuf_addf(out, "  r->graph = &nnrt_program.%s;\n", prep->graph);
      graph = prep->graph;
      strbuf_addf(out, "  PREPARE(P%d, %d, %s);\n", i, prep->op, prep->call);
    }
    if (!graph) strbuf_add(out, "  (void)r;\n");
    strbuf_add(out, "}\n\n");
  }
  StrBuf kernels = {.arena = p->arena};
  cpu_kernels_text(p->kernels, &kernels);
  if (!p->divided) section_text(out, "Fused kernels", kernels.n ? &kernels : &p->declarations);
  for (int c = 0; c < p->code.n; c++)
    emit_code(p, out, c);
  tables_emit(p, out);
}

bool part_open(WholeFile *part, const char *path, Diag *d) {
  return whole_file_open(part, path) ||
         diag_error(d, NULL, "cannot write '%s': %s", path, strerror(errno));
}

bool part_finish(WholeFile *part, const char *path, bool ok, Diag *d) {
  if (whole_file_close(part, ok)) return true;
  // The cause of other failures was reported.
  return ok ? diag_error(d, NULL, "cannot write '%s': %s", path, strerror(errno)) : false;
}

bool text_write(const char *path, const StrBuf *text, Diag *d) {
  WholeFile part;
  if (!part_open(&part, path, d)) return false;
  fwrite(text->at, 1, text->n, part.f);
  return part_finish(&part, path, true, d);
}

bool backend_emit(const Module *m, const char *dir, const BackendOptions *o, Diag *d) {
  Sources sources;
  return program_emit(m, dir, o, &sources, d);
}

bool program_emit(const Module *m, const char *dir, const BackendOptions *o, Sources *sources,
                  Diag *d) {
  *sources = (Sources){0};
  if (m->phase < PHASE_planned) {
    diag_error(d, NULL, "code is made of a planned module, and this one is %s",
               phase_name[m->phase]);
    diag_hint(d, "--emit nn writes it as text; pass 'plan_memory' makes a planned module");
    return false;
  }
  // The module may be unverified after its passes, and emitting relies on schedules.
  for_each_graph(g, m)
    if (g->entry && !verify_schedule(g, d)) return false;
  if (!module_check_ranks(m, d)) return false;
  Arena *a = arena_new();
  Program *p = arena_one(a, Program);
  *p = (Program){.m = m, .o = o, .arena = a, .d = d, .names = names_new(a), .sources = sources};
  p->defines.arena = p->declarations.arena = p->constants.arena = p->sizes.arena = p->device.arena =
      a;
  p->kernels = cpu_kernels_new(a);
  int errors = diag_errors(d);
  // The step is @train, or the first entry; @eval is there if training is.
  for_each_graph(g, p->m) {
    if (!g->entry) continue;
    if (str_equal(g->name, "eval") && p->train.g)
      p->eval = (GraphCode){.g = g, .name = "eval", .index = 1};
    else if (!p->train.g || str_equal(g->name, "train"))
      p->train = (GraphCode){.g = g, .name = "train"};
  }
  bool ok = p->train.g || diag_error(d, NULL, "there is no entry graph to run");
  // Decide everything first: offsets in the payload, rank programs, calls.  Reports all errors at
  // once.
  if (ok) {
    payload_plan(p);
    codes_find(p);
    graph_calls(p, &p->train);
    if (p->eval.g) graph_calls(p, &p->eval);
    ok = diag_errors(d) == errors;
  }
  if (ok) {
    repeats_fold(p);
    names_text(p->names, &p->defines);
  }
  // Constants are emitted after the calls, which have collected them.
  if (ok) {
    StrBuf out = {.arena = a}, body = {.arena = a};
    const TargetBackend *target = target_backend(o->target.target);
    p->divided = sources->divided = pieces_needed(p);
    constants_emit(p);
    emit_program(p, &body);
    if (p->divided) pieces_emit(p);
    if (target->source) {
      SourceFile file = {target->source, {.arena = a}};
      target->source_text(p, &file.text);
      vec_push(a, &p->files, file);
    }
    // The head has the commands for all files.
    emit_head(p, &out);
    strbuf_add(&out, body.at);
    proof_emit(p, &out);
    ok = text_write(str_format(a, "%s/program.c", dir), &out, d) &&
         constants_write(p, str_format(a, "%s/constants.bin", dir)) &&
         payload_write(p, str_format(a, "%s/payload.bin", dir));
    for (int i = 0; ok && i < p->files.n; i++)
      ok = text_write(str_format(a, "%s/%s", dir, p->files.at[i].name), &p->files.at[i].text, d);
    if (ok) pieces_remove(a, dir, sources->n_calls, sources->n_kernels);
    if (ok && !program_validate(m, dir, o, d)) {
      // A text that would not run the module is not left to be compiled.
      static const char *const files[] = {"program.c", "payload.bin", "constants.bin"};
      for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlink(str_format(a, "%s/%s", dir, files[i]));
      for (int i = 0; i < p->files.n; i++)
        unlink(str_format(a, "%s/%s", dir, p->files.at[i].name));
      ok = false;
    }
  }
  arena_free(a);
  return ok;
}
