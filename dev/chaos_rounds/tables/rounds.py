"""The rounds of one scene with tables: they share a place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from dev.chaos_rounds.live_round import LiveRound, Stage
from dev.chaos_rounds.session import Round
from dev.chaos_rounds.tables.names import DELTA_ROOT
from dev.chaos_rounds.tables.places import Place, opened
from dev.chaos_rounds.tables.plan import PlaceName, TableFault, TableRoundPlan, table_plan_of
from dev.chaos_rounds.tables.strikes import strike
from dev.chaos_rounds.topics import ECHO

#: Each commit of a task writes some files, and a server of the tests needs its time for each.
_SETTINGS = {"commit.interval.ms": "2000"}
_APPLICATION = Path(__file__).parent / "application.py"


class TableRounds:
    """Opens the place of a scene, and makes its rounds.

    :param place: where its tables are.
    """

    def __init__(self, seed: int, place: PlaceName) -> None:
        self._seed = seed
        self._name = place
        self._place: Place | None = None

    @contextmanager
    def open_stage(self, folder: Path) -> Iterator[Stage]:
        """Open the place in a folder."""
        with opened(self._name, folder) as place:
            self._place = place
            yield Stage(
                application=_APPLICATION,
                work=(ECHO,),
                verifier=("tables.verifier", "--lake", json.dumps(dict(place.lake))),
                arguments=("--tables-config", str(place.config)),
                settings=_SETTINGS,
                environment={DELTA_ROOT: place.root},
            )

    def round_of(self, number: int, draw: int) -> Round:
        """Draw a round."""
        plan = table_plan_of(self._seed, number, draw)
        return Round(
            plan=plan.drawn,
            point=plan.point,
            manner=plan.manner,
            strike=partial(self._strike, plan),
            on_cluster=plan.fault is TableFault.EXECUTOR_KILLED,
        )

    def _strike(self, plan: TableRoundPlan, live: LiveRound) -> Callable[[], bool]:
        if self._place is None:
            raise RuntimeError("the scene's place is not open")
        return strike(live, plan, self._place)
