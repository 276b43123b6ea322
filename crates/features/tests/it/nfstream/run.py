"""Runs NFStream over captures: for each an output of JSON lines, the columns' names and then the flows."""

import json
import sys

from nfstream import NFStreamer


def rows(capture, decode_tunnels):
    streamer = NFStreamer(
        source=capture,
        decode_tunnels=decode_tunnels,
        idle_timeout=120,
        active_timeout=1800,
        n_dissections=0,
        statistical_analysis=True,
        splt_analysis=10,
        n_meters=1,
    )
    for flow in streamer:
        yield flow.keys(), flow.values()


def main(tunnels, captures):
    for capture in captures:
        with open(f"{capture}.{tunnels}.jsonl", "w", encoding="utf-8") as output:
            for number, (names, values) in enumerate(rows(capture, tunnels == "inner")):
                if number == 0:
                    print(json.dumps(names), file=output)
                print(json.dumps(values), file=output)


main(sys.argv[1], sys.argv[2:])
