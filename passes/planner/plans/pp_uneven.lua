-- As many stages as are best, each on as many neighbouring ranks as are best, which share its rows: for devices of
-- which some are faster, or layers of which some take longer.

function step(axis)
  place(axis)
end
