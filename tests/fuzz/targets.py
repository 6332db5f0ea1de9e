"""All targets, by name. A new one is a class in a module beside this one, and an entry here."""

from __future__ import annotations

from tests.fuzz.arrays import Npz, NpzRun
from tests.fuzz.checkpoints import Checkpoint
from tests.fuzz.core import Target
from tests.fuzz.federations import KitFolder, PlanFile
from tests.fuzz.folders import Folder, Manifest
from tests.fuzz.models import Model
from tests.fuzz.published import Linqs, Ogb, Planetoid
from tests.fuzz.records import CollectedLines, Grid, Record
from tests.fuzz.settings import Options, Toml
from tests.fuzz.tables import TablesTarget
from tests.fuzz.texts import Json

_ALL = (
    Json(),
    Npz(),
    NpzRun(),
    TablesTarget(),
    Folder(),
    Manifest(),
    Model(),
    Planetoid(),
    Linqs(),
    Ogb(),
    Checkpoint(),
    PlanFile(),
    KitFolder(),
    Toml(),
    Options(),
    Record(),
    CollectedLines(),
    Grid(),
)

TARGETS: dict[str, Target] = {target.name: target for target in _ALL}
