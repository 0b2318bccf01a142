-- The embedding over both axes, the layers in stages of several ranks.

function factors(n) return { 2, n // 2 }, { "pp", "tp" } end

function step(pp, tp)
  apply("words", pp)
  apply("words", tp)
  apply("tp", tp)
  place(pp, 2)
end
