"""ShotFit against the published algorithm, executed literally, on this machine.

    make bench-speed                                # every case, about 30 minutes on two idle cores
    make bench-speed ARGS="--only stage1 names"     # some of them
    make bench-speed ARGS="--table"                 # docs/performance.md anew from the records

Models have the real shapes and random weights, so that nothing is downloaded; images are random
pixels, decoded on neither side. Each side of a case is a process of its own, so that peak memory is
its own; the two are measured in turns, A B A B, so that a machine that drifts is fair to both.

`shapes.py` builds the models, `ours.py` and `literal_side.py` say what one unit of each measured
job is, `process.py` runs them, `cases/` puts them together, `flops.py` counts what is needed,
`report.py` and `figure.py` show the records.
"""
