// The field .proof (rt/nnrt.h), which the executable's --describe prints: the fingerprints of the
// model's program, the plan, and this text.  A text edited by hand no longer has its own.
//
//     .proof = {.model = UINT64_C(0x52c1…), .plan = UINT64_C(0x0b7e…), .program = UINT64_C(0x9f40…)},
//
// It is compared last: other readers find out first whether a text runs the module.  A plan is
// proved to compute a model's program, so both have a fingerprint or none.

#include <inttypes.h>

#include "base/hash.h"
#include "check.h"
#include "ir/model_values.h"

bool proof_read(Check *c, Cursor *at) {
  ProofText *p = &c->p.proof;
  static const char *const fields[] = {"{.model = UINT64_C(", "), .plan = UINT64_C(",
                                       "), .program = UINT64_C("};
  CToken *tokens[] = {&p->model, &p->plan, &p->program};
  for (int i = 0; i < 3; i++) {
    if (!want(c, at, fields[i])) return false;
    *tokens[i] = cursor_next(at);
  }
  return want(c, at, ")}");
}

static bool is_fingerprint(Check *c, const CToken *t, uint64_t fingerprint) {
  return ctoken_is(t, str_format(c->arena, "0x%016" PRIx64, fingerprint));
}

bool proof_check(Check *c) {
  const ProofText *p = &c->p.proof;
  const CFile *text = &c->program;
  const ModelValues *values = c->m->model_values;
  const ModelValues *model = !c->o || c->o->proved ? values : NULL;
  bool proved = !is_fingerprint(c, &p->model, 0);
  // Without the options the module was read from a file, and its proof is unknown.
  if ((c->o || (proved && values)) && !is_fingerprint(c, &p->model, model ? model->fingerprint : 0))
    return mismatch(c, &p->begin, ".proof names another model's program");
  if (c->o && !is_fingerprint(c, &c->p.plan_hash, c->o->plan_hash))
    return mismatch(c, &p->begin, ".plan_hash is that of another plan");
  const CToken *plan = &c->p.plan_hash;
  if (proved ? !ctoken_is(&p->plan, ctoken_text(plan, c->arena)) : !is_fingerprint(c, &p->plan, 0))
    return mismatch(c, &p->begin, ".proof names another plan");
  const char *end = cursor_peek(&p->begin).at;
  uint64_t h = fnv1a(FNV1A_EMPTY, text->text, (size_t)(end - text->text));
  for (int i = 0; i < c->files.n; i++) {
    text = &c->files.at[i]->text;
    h = fnv1a(h, text->text, (size_t)(text->end - text->text));
  }
  return is_fingerprint(c, &p->program, h) ||
         mismatch(
             c, &p->begin,
             "the text runs the module, but its fingerprint is 0x%016" PRIx64 ": it was edited", h);
}
