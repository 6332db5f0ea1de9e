"""Kits: what every party needs to take part, made once by whoever sets the federation up.

DIR/federation.toml   what all parties agree on; a copy is in every kit
DIR/coordinator/      for 'fedgkd federation serve'
DIR/<site>/           for 'fedgkd federation join', one for each site
DIR/admin/            for 'fedgkd federation start', 'status' and 'stop'
DIR/authority/        the key that signs all certificates: to be kept offline, needed to renew them
"""

from __future__ import annotations

import io
import json
import shutil
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedgkd.atomic import atomic_folder, atomic_write_text
from fedgkd.errors import FederationError
from fedgkd.federation.names import CONTROLLER, EXECUTOR, GUEST_LIST, LOGGER, PRESENCE, SUSPENDED
from fedgkd.federation.plan import Plan, read_plan

COORDINATOR, ADMIN, AUTHORITY = "coordinator", "admin", "authority"
_STARTUP = {"fed_server.json": COORDINATOR, "fed_client.json": "site", "fed_admin.json": ADMIN}

_NOTHING = dict.fromkeys(("clone_job", "download_job", "shell_commands", "byoc"), "none")
_AT_SITES = {"submit_job": "any", "manage_job": "any", "view": "any", "operate": "none", **_NOTHING}
_AT_COORDINATOR = _AT_SITES | {"shell_commands": "any", "operate": "any"}
"""Of the admin. At the coordinator, "shell" is reading a file of its kit; the status is read so. Nobody brings code."""

_FLARE = "nvflare.app_common"

_AUTHORITY_DAYS = 3650
"""The parties' certificates last 360 days and are renewed; the authority's own must outlive them."""

_SECONDS_UNTIL_GONE = 30
"""Without a heartbeat for that long, the coordinator takes a site for gone."""


def require_flare() -> None:
    """Raise if the extra is not installed."""
    try:
        import nvflare  # noqa: F401
    except ImportError as error:
        raise FederationError("a real federation needs NVIDIA FLARE: pip install 'fedgkd[federation]'") from error


@dataclass(frozen=True)
class Kit:
    """A party's kit."""

    path: Path
    plan: Plan
    role: str

    @classmethod
    def open(cls, path: Path, *roles: str, allowed: str | None = None) -> Kit:
        """A kit of one of these roles.

        Args:
            allowed: An algorithm of somebody's own that its federation file may name.

        Raises:
            FederationError: If it is not one, in one sentence.
        """
        require_flare()
        path = path.resolve()
        if not path.is_dir():
            raise FederationError(f"{path} is not a folder; --kit takes one that 'fedgkd federation init' made")
        plan = read_plan(path, allowed)
        role = next((role for file, role in _STARTUP.items() if (path / "startup" / file).exists()), None)
        if role is None:
            raise FederationError(f"{path} is not a kit: its folder startup is missing or empty")
        if role not in roles:
            raise FederationError(f"{path} is the kit of {_a(role)}; this command takes that of {_a(roles[0])}")
        return cls(path, plan, role)

    @property
    def startup(self) -> Path:
        return self.path / "startup"

    @property
    def root_certificate(self) -> Path:
        return self.startup / "rootCA.pem"

    @property
    def certificate(self) -> Path:
        return self.startup / ("server.crt" if self.role == COORDINATOR else "client.crt")

    @property
    def key(self) -> Path:
        return self.certificate.with_suffix(".key")

    @property
    def name(self) -> str:
        """Who the certificate says this party is."""
        from cryptography.x509.oid import NameOID

        names = self.load(self.certificate).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        if not names:
            raise FederationError(f"{self.certificate} names nobody; take a fresh kit")
        return str(names[0].value)

    def load(self, path: Path) -> Any:
        """A certificate of the kit."""
        from cryptography import x509
        from cryptography.exceptions import UnsupportedAlgorithm

        try:
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
            # These are read only now, and may be damaged each for itself.
            _ = certificate.subject, certificate.public_key(), certificate.not_valid_after_utc
            return certificate
        except OSError as error:
            raise FederationError(f"cannot read {path}: {error.strerror or error}") from error
        except (ValueError, UnsupportedAlgorithm) as error:
            raise FederationError(f"{path} is not a certificate, or is damaged") from error

    def check_certificate(self, now: datetime | None = None) -> datetime:
        """Raise if this party could not prove who it is; returns until when it can."""
        from fedgkd.federation.network import about_clocks

        now = now or datetime.now(UTC)
        for path in (self.root_certificate, self.certificate):
            certificate = self.load(path)
            if now < certificate.not_valid_before_utc:
                raise FederationError(
                    f"{path} is valid from {day(certificate.not_valid_before_utc)} on, but this machine's clock says "
                    f"{day(now)}; set the clock right"
                )
            if now > certificate.not_valid_after_utc:
                raise FederationError(
                    f"{path} expired on {day(certificate.not_valid_after_utc)} by this machine's clock, which says "
                    f"{day(now)}; {about_clocks(self, now)}"
                )
        self._check_signature()
        self._check_key()
        end: datetime = self.load(self.certificate).not_valid_after_utc
        return end

    def _check_signature(self) -> None:
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

        unsigned = (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError)
        root = self.load(self.root_certificate)
        try:
            root.verify_directly_issued_by(root)
        except unsigned as error:
            raise FederationError(f"{self.root_certificate} is damaged; take a fresh kit") from error
        try:
            self.load(self.certificate).verify_directly_issued_by(root)
        except unsigned as error:
            raise FederationError(
                f"{self.certificate} was not signed by the federation's authority (rootCA.pem); take a fresh kit"
            ) from error

    def _check_key(self) -> None:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(self.key.read_bytes(), None)
        except OSError as error:
            raise FederationError(f"cannot read {self.key}: {error.strerror or error}") from error
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise FederationError(f"{self.key} is not a private key, or is damaged") from error
        if key.public_key() != self.load(self.certificate).public_key():
            raise FederationError(f"{self.key} does not belong to {self.certificate.name}; take a fresh kit")


def make_kits(plan: Plan, out: Path) -> list[Path]:
    """Certificates and one kit per party, all of them or nothing.

    Raises:
        FederationError: If the folder is in use or a kit cannot be made.
    """
    require_flare()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FederationError(f"{out} is not an empty folder; choose another --out")
    with atomic_folder(out.resolve(), FederationError) as temporary:
        _provision(plan, temporary)
        plan.write(temporary)
    return [out / name for name in (COORDINATOR, *plan.sites, ADMIN)]


_ROOT = ("root_cert", "root_pri_key")


def renew_kits(folder: Path, out: Path) -> list[Path]:
    """Kits with new certificates of the same authority; the plan is that of ``folder``."""
    require_flare()
    plan = read_plan(folder)
    state = folder / AUTHORITY / "cert.json"
    try:
        authority = json.loads(state.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FederationError(f"{state} is needed to renew certificates, and cannot be read ({error})") from error
    if not isinstance(authority, dict) or not all(isinstance(authority.get(name), str) for name in _ROOT):
        raise FederationError(f"{state} is needed to renew certificates, and does not hold {' and '.join(_ROOT)}")
    if out.exists():
        raise FederationError(f"{out} is there already; choose another --out")
    # Without the parties' entries the authority issues new certificates, under the same root.
    kept = {name: value for name, value in authority.items() if name.startswith("root")}
    with atomic_folder(out.resolve(), FederationError) as temporary:
        _provision(plan, temporary, kept)
        plan.write(temporary)
    return [out / name for name in (COORDINATOR, *plan.sites, ADMIN)]


def _provision(plan: Plan, out: Path, authority: dict[str, Any] | None = None) -> None:
    """Let NVIDIA FLARE make the kits, then put our rules in the place of its defaults."""
    from nvflare.lighter.entity import Project
    from nvflare.lighter.impl.cert import CertBuilder
    from nvflare.lighter.impl.static_file import StaticFileBuilder
    from nvflare.lighter.impl.workspace import WorkspaceBuilder
    from nvflare.lighter.provisioner import Provisioner

    work = out / ".provision"
    admin = admin_name(plan)
    project = Project(plan.rules.name, "made by fedgkd", props={"api_version": 3})
    hosts = {"default_host": plan.rules.host, "host_names": [plan.rules.host]}
    try:
        project.set_server(COORDINATOR, COORDINATOR, {"fed_learn_port": plan.rules.port, **hosts})
    except ValueError as error:
        raise FederationError(f"host = {plan.rules.host!r} cannot be used: {error}") from error
    for site in plan.sites:
        project.add_client(site, site.replace("-", "_"), {})
    project.add_admin(admin, COORDINATOR, {"role": "project_admin"})
    if authority is not None:
        state = work / plan.rules.name / "state" / "cert.json"
        state.parent.mkdir(parents=True)
        state.write_text(json.dumps(authority), encoding="utf-8")
    builders = [
        WorkspaceBuilder(template_file=["master_template.yml"]),
        StaticFileBuilder(config_folder="config"),
        CertBuilder(root_valid_days=_AUTHORITY_DAYS),
    ]
    told = io.StringIO()
    try:
        with redirect_stdout(told), redirect_stderr(told):
            Provisioner(str(work), builders).provision(project)
    except (RuntimeError, ValueError, TypeError, OSError) as error:
        raise FederationError(f"the kits could not be made: {error}") from error
    made = work / plan.rules.name / "prod_00"
    for given, ours in {COORDINATOR: COORDINATOR, admin: ADMIN, **{site: site for site in plan.sites}}.items():
        (made / given).rename(out / ours)
        _complete(out / ours, plan, ours)
    (work / plan.rules.name / "state").rename(out / AUTHORITY)
    (out / AUTHORITY).chmod(0o700)
    (out / AUTHORITY / "cert.json").chmod(0o600)
    shutil.rmtree(work)


def admin_name(plan: Plan) -> str:
    return f"admin@{plan.rules.name}.local"


def _complete(kit: Path, plan: Plan, name: str) -> None:
    plan.write(kit)
    # We start the processes ourselves, with settings of our own; the scripts and samples would only confuse.
    for pattern in ("startup/*.sh", "startup/*.ipynb", "**/readme.txt"):
        for file in kit.glob(pattern):
            file.unlink()
    shutil.rmtree(kit / "local")
    (kit / "local").mkdir()
    if name != ADMIN:
        settle(Kit(kit, plan, COORDINATOR if name == COORDINATOR else "site"))


def settle(kit: Kit) -> None:
    """Write anew all that FLARE reads in a kit, from the federation file and from installed code alone.

    A kit comes from outside: modules, names of classes and rights that it may bring are removed unread. Jobs and
    snapshots of an earlier life are of no use either: FLARE cannot take up a job that was running, and our own
    checkpoint holds all there is.
    """
    ours = {file: role for file, role in _STARTUP.items() if role == kit.role}
    certificates = {kit.root_certificate.name, kit.certificate.name, kit.key.name}
    try:
        for path in (kit.path / "storage", kit.path / "local"):
            _remove(path)
        for path in kit.startup.iterdir():
            if path.name not in certificates | ours.keys():
                _remove(path)
        (kit.path / "local").mkdir()
    except OSError as error:
        raise FederationError(f"cannot write to {error.filename or kit.path}: {error.strerror or error}") from error
    at_coordinator = kit.role == COORDINATOR
    (startup,) = ours
    rights = {"project_admin": _AT_COORDINATOR if at_coordinator else _AT_SITES}
    files = {
        f"startup/{startup}": _server(kit) if at_coordinator else _client(kit),
        "local/resources.json": _coordinator_resources(kit) if at_coordinator else _site_resources(),
        "local/authorization.json": {"format_version": "1.0", "permissions": rights},
        "local/log_config.json": _logging(),
    }
    for name, content in files.items():
        atomic_write_text(kit.path / name, json.dumps(content, indent=2) + "\n", FederationError)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _server(kit: Kit) -> dict[str, Any]:
    """How FLARE's server listens."""
    rules = kit.plan.rules
    server = {
        "name": rules.name,
        "service": {"target": f"{COORDINATOR}:{rules.port}", "scheme": "http"},
        "admin_server": COORDINATOR,
        "admin_port": rules.port,
        **_tls(kit),
    }
    return {"format_version": 2, "servers": [server]}


def _client(kit: Kit) -> dict[str, Any]:
    """How FLARE's client finds the server."""
    rules = kit.plan.rules
    service = {"target": f"{rules.host}:{rules.port}", "scheme": "http"}
    return {
        "format_version": 2,
        "servers": [{"name": rules.name, "service": service, "identity": COORDINATOR}],
        "client": {"fqsn": kit.name, "is_leaf": True, **_tls(kit)},
    }


def _tls(kit: Kit) -> dict[str, str]:
    files = {"ssl_private_key": kit.key, "ssl_cert": kit.certificate, "ssl_root_cert": kit.root_certificate}
    return {name: path.name for name, path in files.items()} | {"connection_security": "mtls"}


def _coordinator_resources(kit: Kit) -> dict[str, Any]:
    """One job at a time, which waits for its sites, stored in the kit and not in the system's temporary folder."""
    storage = kit.path / "storage"
    files = {"path": f"{_FLARE}.storages.filesystem_storage.FilesystemStorage"}
    snapshots = {**files, "args": {"root_dir": str(storage / "snapshots"), "uri_root": "/"}}
    scheduling = {
        "max_jobs": 1,
        "max_schedule_count": 10**9,
        "min_schedule_interval": 1.0,
        "max_schedule_interval": 2.0,
    }
    guests = [*(site for site in kit.plan.sites if site not in kit.plan.blocked), admin_name(kit.plan)]
    return {
        **_only_our(CONTROLLER),
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": max(100, len(kit.plan.sites)),
                "heart_beat_timeout": _SECONDS_UNTIL_GONE,
                "download_job_url": "http://download.server.com/",
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": f"{_FLARE}.state_persistors.storage_state_persistor.StorageStatePersistor",
            "args": {"uri_root": "/", "storage": snapshots},
        },
        "components": [
            _component("job_scheduler", f"{_FLARE}.job_schedulers.job_scheduler.DefaultJobScheduler", **scheduling),
            _component(
                "job_manager",
                "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                uri_root=str(storage / "jobs"),
                job_store_id="job_store",
            ),
            {"id": "job_store", **files},
            _component("process_launcher", f"{_FLARE}.job_launcher.server_process_launcher.ServerProcessJobLauncher"),
            _component(
                "guest_list",
                GUEST_LIST,
                guests=guests,
                presence=str(kit.path / PRESENCE),
                suspended=str(kit.path / SUSPENDED),
            ),
        ],
    }


def _site_resources() -> dict[str, Any]:
    """Nothing but our executor may be built, and no log leaves the site."""
    no_gpus = {"num_of_gpus": 0, "mem_per_gpu_in_GiB": 0, "expiration_period": 300}
    return {
        **_only_our(EXECUTOR),
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30, "compression": "Gzip"},
        "components": [
            _component(
                "resource_manager", f"{_FLARE}.resource_managers.gpu_resource_manager.GPUResourceManager", **no_gpus
            ),
            _component("resource_consumer", f"{_FLARE}.resource_consumers.gpu_resource_consumer.GPUResourceConsumer"),
            _component("process_launcher", f"{_FLARE}.job_launcher.client_process_launcher.ClientProcessJobLauncher"),
        ],
    }


def _only_our(name: str) -> dict[str, Any]:
    return {"format_version": 2, "class_list_enforcement_mode": "enforce", "class_allow_list": [name]}


def _component(name: str, path: str, **arguments: Any) -> dict[str, Any]:
    return {"id": name, "path": path, "args": arguments}


def _logging() -> dict[str, Any]:
    """Our own sentences on the screen; everything in the kit's log.txt."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "plain": {"format": "%(asctime)s %(message)s", "datefmt": "%Y-%m-%d %H:%M:%S"},
            "full": {"format": "%(asctime)s %(name)s %(levelname)s %(message)s"},
        },
        "handlers": {
            "screen": {"class": "logging.StreamHandler", "formatter": "plain", "stream": "ext://sys.stdout"},
            "file": {
                "class": "logging.handlers.RotatingFileHandler",
                "formatter": "full",
                "filename": "log.txt",
                "maxBytes": 20 * 2**20,
                "backupCount": 5,
            },
        },
        "loggers": {
            "root": {"level": "INFO", "handlers": ["file"]},
            LOGGER: {"level": "INFO", "handlers": ["screen"]},
        },
    }


def _a(role: str) -> str:
    return {COORDINATOR: "the coordinator", ADMIN: "the admin"}.get(role, "a site")


def day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
