// --report: one page on a plan and what is predicted of it, for people.
//
//     report.c            the page: what was asked, what is predicted, the alternatives, the diffs
//     report_graph.c      what the model computes, blocks once, with the layouts of values
//     report_pictures.c   who does what when, and what is in memory meanwhile
//     report_traffic.c    what moves between ranks
//     report.html         what stands around it, and how it looks

#ifndef TOOLS_REPORT_H
#define TOOLS_REPORT_H

#include "cost/timeline.h"
#include "summary.h"

typedef struct Report {
  const char *model, *plan; // as the user called them; no plan: ""
  const Module *m;
  const Summary *seen;
  const StepTimeline *timeline;
  const LaneMemory *memory; // or NULL
  const LaneMemory *host;   // what is in host memory; NULL: nothing is
  const char *diffs;        // what passes changed: unified diffs, one after the other
  const char *counts;       // their figures, a line each: "raise: 12 attention"
} Report;

const char *report_text(Arena *a, const Report *r);

// -- What the files of it share ----------------------------------------------------------------

extern const char report_html[];

void html_add(StrBuf *b, const char *text); // as text: < becomes &lt;
// "1.25 ms", "3.1 GB"
const char *seconds_text(Arena *a, double seconds);
const char *bytes_text(Arena *a, double bytes);
// "rank 3", "ranks 0-63"
const char *lane_text(Arena *a, const StepLane *lane);

void report_graph(StrBuf *b, const Report *r);
void report_timeline(StrBuf *b, const Report *r);
void report_memory(StrBuf *b, const Report *r);
void report_traffic(StrBuf *b, const Report *r);

#endif
