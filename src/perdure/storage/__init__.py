"""Large payloads outside of history, and keeping the place small where they lie.

payloads     Temporal's external storage, and what it holds of a session
directories  a content-addressed store in a folder that many processes share
buckets      the same in a bucket of S3, by the SDK's driver
places       which of the two a setting names
unavailable  what stands in for a payload that is not there
sweeping     what takes away payloads that nothing refers to any more
references   what a history refers to
tenants      whose payloads lie in a folder
"""

from perdure.storage.directories import Directory, Owner
from perdure.storage.payloads import PAYLOADS, RESULTS, external_storage, holders, stores
from perdure.storage.unavailable import unavailable

__all__ = ["PAYLOADS", "RESULTS", "Directory", "Owner", "external_storage", "holders", "stores", "unavailable"]
