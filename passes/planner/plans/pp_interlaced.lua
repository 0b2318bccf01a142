-- An embedding that is too large for one rank is cut by words over all of them, and so are the logits, which are made
-- with the same table where it is tied; the rest is stages. Ranks take turns at both (nnScaler, table 6 and figure 6).

function step(axis)
  apply("words", axis)
  place(axis, size(axis))
  schedule("interlaced")
end
