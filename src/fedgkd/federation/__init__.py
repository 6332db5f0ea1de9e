"""A real federation: one coordinator, one process per site, mutual TLS, on NVIDIA FLARE.

The algorithms are those of the simulation. :mod:`~fedgkd.federation.coordinator` runs their server step and
:mod:`~fedgkd.federation.site` their client step; both speak bytes (:mod:`~fedgkd.federation.wire`) and know nothing of
the network, which is that of FLARE alone (``controller``, ``executor``, ``guests``).
"""
