"""hybridq on a local cluster that it starts; every mode shares one cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hybridq.session import connect
from hybridq.shipped import find_plan

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from hybridq.report import Report
    from hybridq.session import Session


class HybridqPeer:
    """One mode. The first instance starts the cluster; the others attach to it."""

    def __init__(self, mode: str, cluster: str | None, first: HybridqPeer | None = None) -> None:
        self.name = f"hybridq {mode}"
        self.note = f"mode {mode}, cluster {cluster or 'local'}, planning included"
        self._mode = mode
        self._cluster = cluster
        self._first = first
        self._session: Session | None = None
        self._report: Report | None = None

    @property
    def session(self) -> Session:
        if self._session is None:
            raise RuntimeError("start has not been called")
        return self._session

    def start(self, folder: Path) -> None:
        self._session = connect(self._first.session.address if self._first is not None else self._cluster)
        self._session.register_folder(folder)
        devices = ", ".join(f"{d.worker} {d.engine} x{d.threads}" for d in self._session.devices())
        self.note += f" ({devices})"

    def run(self, query: str) -> pa.Table:
        result = self.session.sql(find_plan(query).read_text()).collect(mode=self._mode)
        self._report = result.report
        return result.to_arrow()

    def details(self) -> dict[str, object]:
        if self._report is None:
            return {}
        chunks: dict[str, int] = {}
        for stage in self._report.stages:
            for device in stage.devices:
                chunks[device.engine] = chunks.get(device.engine, 0) + device.chunks
        return {
            "plan_s": round(self._report.seconds["plan"], 4),
            "chunks": chunks,
            "modes": [stage.mode for stage in self._report.stages],
            "fallbacks": sum(len(stage.fallbacks) for stage in self._report.stages),
        }

    def worker_pids(self) -> list[int]:
        return [device.pid for device in self.session.devices()]

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
