"""hybridq on a local cluster that it starts; every mode shares one cluster."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from bench.suites import query_text
from hybridq.session import connect

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from bench.peers import Setup
    from hybridq.report import Report
    from hybridq.session import Session


class HybridqPeer:
    """One mode. The first instance starts the cluster; the others attach to it."""

    must_be_exact = True
    uses_gpu = True

    def __init__(self, mode: str, setup: Setup, first: HybridqPeer | None = None) -> None:
        self.name = f"hybridq {mode}"
        self.note = f"mode {mode}, cluster {setup.cluster or 'local'}, planning included"
        self._mode = mode
        self._cluster = setup.cluster
        self._scale_factor = setup.scale_factor
        self._first = first
        self._session: Session | None = None
        self._report: Report | None = None
        self._client: Any = None  # a connection of its own, to ask GPU workers for their memory

    @property
    def session(self) -> Session:
        if self._session is None:
            raise RuntimeError("start has not been called")
        return self._session

    def start(self, folder: Path) -> None:
        address = self._first.session.address if self._first is not None else self._cluster
        self._session = connect(address, kept_plans=0)  # planning is part of each run
        self._session.register_folder(folder)
        devices = ", ".join(
            f"{d.worker} {d.engine} x{d.threads}" + (f" {d.device_memory} bytes" if d.device_memory else "")
            for d in self._session.devices()
        )
        self.note = f"mode {self._mode}, planning included ({devices})"

    def run(self, query: str) -> pa.Table:
        self._report = None
        result = self.session.sql(query_text(query, self._scale_factor)).collect(mode=self._mode)
        self._report = result.report
        return result.to_arrow()

    def details(self) -> dict[str, object]:
        if self._report is None:
            return {}
        chunks: Counter[str] = Counter()
        stage_chunks: list[Counter[str]] = []
        for stage in self._report.stages:
            stage_chunks.append(Counter())
            for device in stage.devices:
                chunks[device.engine] += device.chunks
                stage_chunks[-1][device.kind] += device.chunks
        fallbacks = [fallback for stage in self._report.stages for fallback in stage.fallbacks]
        limits = [device.device_memory for device in self.session.devices() if device.device_memory]
        return {
            "device_limit_bytes": min(limits, default=None),
            "plan_s": round(self._report.seconds["plan"], 4),
            "chunks": dict(chunks),
            "modes": [stage.mode for stage in self._report.stages],
            "stage_chunks": [dict(found) for found in stage_chunks],
            "reasons": [stage.reason for stage in self._report.stages],
            "retries": sum(stage.retries for stage in self._report.stages),
            "fallbacks": len(fallbacks),
            "fallback_causes": sorted({fallback.cause for fallback in fallbacks})[:5],
            "peak_device_bytes": self._report.peak_device_bytes,
            "device_bytes_in_use": self._device_bytes_in_use(),
        }

    def _device_bytes_in_use(self) -> list[int]:
        gpus = [device.address for device in self.session.devices() if device.kind == "gpu"]
        if not gpus:
            return []
        if self._client is None:
            from distributed import Client

            self._client = Client(self.session.address, set_as_default=False)
        return list(self._client.run(device_bytes_in_use, workers=gpus).values())

    def worker_pids(self) -> list[int]:
        return [device.pid for device in self.session.devices()]

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._session is not None:
            self._session.close()


def device_bytes_in_use() -> int:
    """Return the bytes of device memory that the engine of this worker holds."""
    from hybridq.dispatch.worker import engine_for_worker

    memory: Any = getattr(engine_for_worker("gpu"), "memory", None)
    return int(memory.used)
