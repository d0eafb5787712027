"""PostgreSQL's catalog, as far as clients ask for it: `pg_catalog` and `information_schema`, with what is here."""

from headrace.server.postgres.catalog.queries import CatalogQueries

__all__ = ["CatalogQueries"]
