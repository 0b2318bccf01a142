// --check-with 1: the reference of the executable, FILE.check, for its --check-against.
//
//     nnaot m.onnx -g 4 --plan tp --check-with 1 -o train_rank      train_rank and train_rank.check
//     ./train_rank --check-against train_rank.check --input …
//
// It is made of the model's program that the proof of the plan began with, so plans that transform
// the model, the loss, the type and the batch agree.  Its pipeline has the passes without which
// there is no executable, and no others: they are under test.  Every elementwise op is a kernel of
// its own, so that all values are in memory.

#include "driver.h"
#include "ir/model_values.h"
#include "prove/prove.h"

const char *check_output(const Settings *s, Arena *a) {
  return str_format(a, "%s.check", s->output);
}

bool check_reference(const Settings *s, const Compiled *c, Diag *d) {
  if (c->m->model_values) return true;
  diag_error(d, NULL,
             "--check-with: the plan is not proved, so its values cannot be compared with "
             "those of one rank");
  if (module_asynchronous(c->m))
    diag_note(d, NULL, "its stages update their weights in every micro-batch: another program");
  else if (is_text(s))
    diag_hint(d, "'%s' was distributed before: --prove=MODEL proves it", s->model);
  return false;
}

bool write_check(const Settings *s, const Compiled *c, Arena *a, Diag *d) {
  const ModelValues *values = c->m->model_values;
  const char *target = target_info[s->backend.target.target].name;
  const char *pipeline = str_format(a,
                                    "shard(mesh=\"acc:1:time\" plan=\"dp\" unlimited=true "
                                    "target=\"%s\"),comm,legalize_types(target=\"%s\"),"
                                    "fuse(each=true),plan_memory(target=\"%s\")",
                                    target, target, target);
  PipelineOptions run = {.verify_each = s->run.verify_each, .bisect_limit = -1, .keep_model = true};
  Compiled one = *c;
  one.m = module_clone(values->program);
  one.choice.name = "dp";
  Settings alone = *s;
  alone.output = check_output(s, a);
  alone.ranks = 1;
  alone.split_ranks = false;
  bool ok = pipeline_run(one.m, pipeline, &run, d) && write_executable(&alone, &one, a, d);
  module_free(one.m);
  return ok || diag_error(d, NULL, "this is of '%s', which --check-with asks for", alone.output);
}
