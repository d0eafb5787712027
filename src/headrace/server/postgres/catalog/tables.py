"""The tables of PostgreSQL's catalog: their columns, and the rows that describe the server.

Most are empty: they are there because clients join them. A type that is not written is BIGINT; `?` is BOOLEAN, `$` is
VARCHAR, and `[]` behind a type makes a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import pyarrow as pa

from headrace.server.postgres.columns import WireColumn

__all__ = ["TABLES", "CatalogRelation", "catalog_maps", "catalog_rows", "columns_of"]

_PG, _PUBLIC, _INFORMATION, _OWNER = 11, 2200, 13000, 10
_DATABASE = 16_384
TABLES: Mapping[str, str] = {
    "pg_namespace": "oid nspname$ nspowner nspacl$[]",
    "pg_class": "oid relname$ relnamespace reltype reloftype relowner relam relfilenode reltablespace relpages "
    "reltuples relallvisible reltoastrelid relhasindex? relisshared? relpersistence$ relkind$ relnatts relchecks "
    "relhasrules? relhastriggers? relhassubclass? relrowsecurity? relforcerowsecurity? relispopulated? "
    "relreplident$ relispartition? relrewrite relfrozenxid relminmxid relacl$[] reloptions$[] relpartbound$ "
    "relhasoids? xmin",
    "pg_attribute": "attrelid attname$ atttypid attstattarget attlen attnum attndims attcacheoff atttypmod attbyval? "
    "attalign$ attstorage$ attcompression$ attnotnull? atthasdef? atthasmissing? attidentity$ attgenerated$ "
    "attisdropped? attislocal? attinhcount attcollation attacl$[] attoptions$[] attfdwoptions$[] attmissingval$",
    "pg_attrdef": "oid adrelid adnum adbin$",
    "pg_type": "oid typname$ typnamespace typowner typlen typbyval? typtype$ typcategory$ typispreferred? "
    "typisdefined? typdelim$ typrelid typsubscript$ typelem typarray typinput$ typoutput$ typreceive$ typsend$ "
    "typmodin$ typmodout$ typanalyze$ typalign$ typstorage$ typnotnull? typbasetype typtypmod typndims typcollation "
    "typdefaultbin$ typdefault$ typacl$[]",
    "pg_database": "oid datname$ datdba encoding datlocprovider$ datistemplate? datallowconn? datconnlimit "
    "datfrozenxid datminmxid dattablespace datcollate$ datctype$ daticulocale$ daticurules$ datlocale$ "
    "datcollversion$ datacl$[]",
    "pg_roles": "oid rolname$ rolsuper? rolinherit? rolcreaterole? rolcreatedb? rolcanlogin? rolreplication? "
    "rolconnlimit rolpassword$ rolvaliduntil$ rolbypassrls? rolconfig$[]",
    "pg_user": "usename$ usesysid usecreatedb? usesuper? userepl? usebypassrls? passwd$ valuntil$ useconfig$[]",
    "pg_auth_members": "oid roleid member grantor admin_option? inherit_option? set_option?",
    "pg_index": "indexrelid indrelid indnatts indnkeyatts indisunique? indnullsnotdistinct? indisprimary? "
    "indisexclusion? indimmediate? indisclustered? indisvalid? indcheckxmin? indisready? indislive? indisreplident? "
    "indkey[] indcollation[] indclass[] indoption[] indexprs$ indpred$",
    "pg_constraint": "oid conname$ connamespace contype$ condeferrable? condeferred? convalidated? conrelid contypid "
    "conindid conparentid confrelid confupdtype$ confdeltype$ confmatchtype$ conislocal? coninhcount connoinherit? "
    "conenforced? conperiod? conkey[] confkey[] conpfeqop[] conppeqop[] conffeqop[] confdelsetcols[] conexclop[] "
    "conbin$",
    "pg_description": "objoid classoid objsubid description$",
    "pg_shdescription": "objoid classoid description$",
    "pg_am": "oid amname$ amhandler$ amtype$",
    "pg_collation": "oid collname$ collnamespace collowner collprovider$ collisdeterministic? collencoding "
    "collcollate$ collctype$ colliculocale$ collicurules$ collversion$",
    "pg_inherits": "inhrelid inhparent inhseqno inhdetachpending?",
    "pg_policy": "oid polname$ polrelid polcmd$ polpermissive? polroles[] polqual$ polwithcheck$",
    "pg_rewrite": "oid rulename$ ev_class ev_type$ ev_enabled$ is_instead? ev_qual$ ev_action$",
    "pg_trigger": "oid tgrelid tgparentid tgname$ tgfoid tgtype tgenabled$ tgisinternal? tgconstrrelid tgconstrindid "
    "tgconstraint tgdeferrable? tginitdeferred? tgnargs tgattr[] tgargs$ tgqual$ tgoldtable$ tgnewtable$",
    "pg_proc": "oid proname$ pronamespace proowner prolang procost prorows provariadic prosupport$ prokind$ "
    "prosecdef? proleakproof? proisstrict? proretset? provolatile$ proparallel$ pronargs pronargdefaults prorettype "
    "proargtypes[] proallargtypes[] proargmodes$[] proargnames$[] proargdefaults$ prosrc$ probin$ proacl$[]",
    "pg_aggregate": "aggfnoid aggkind$ aggnumdirectargs",
    "pg_operator": "oid oprname$ oprnamespace oprowner oprkind$ oprleft oprright oprresult oprcode$",
    "pg_opclass": "oid opcmethod opcname$ opcnamespace opcowner opcfamily opcintype opcdefault? opckeytype",
    "pg_language": "oid lanname$ lanowner lanispl? lanpltrusted? lanplcallfoid laninline lanvalidator",
    "pg_enum": "oid enumtypid enumsortorder enumlabel$",
    "pg_range": "rngtypid rngsubtype rngmultitypid rngcollation rngsubopc rngcanonical$ rngsubdiff$",
    "pg_sequence": "seqrelid seqtypid seqstart seqincrement seqmax seqmin seqcache seqcycle?",
    "pg_extension": "oid extname$ extowner extnamespace extrelocatable? extversion$ extconfig[] extcondition$[]",
    "pg_depend": "classid objid objsubid refclassid refobjid refobjsubid deptype$",
    "pg_foreign_table": "ftrelid ftserver ftoptions$[]",
    "pg_foreign_server": "oid srvname$ srvowner srvfdw srvtype$ srvversion$ srvacl$[] srvoptions$[]",
    "pg_foreign_data_wrapper": "oid fdwname$ fdwowner fdwhandler fdwvalidator fdwacl$[] fdwoptions$[]",
    "pg_partitioned_table": "partrelid partstrat$ partnatts partdefid partattrs[] partclass[] partexprs$",
    "pg_statistic_ext": "oid stxrelid stxname$ stxnamespace stxowner stxstattarget stxkeys[] stxkind$[] stxexprs$",
    "pg_publication": "oid pubname$ pubowner puballtables? pubinsert? pubupdate? pubdelete? pubtruncate? pubviaroot?",
    "pg_publication_rel": "oid prpubid prrelid prqual$ prattrs[]",
    "pg_publication_namespace": "oid pnpubid pnnspid",
    "pg_subscription": "oid subdbid subname$ subowner subenabled?",
    "pg_tablespace": "oid spcname$ spcowner spcacl$[] spcoptions$[]",
    "pg_ts_config": "oid cfgname$ cfgnamespace cfgowner cfgparser",
    "pg_event_trigger": "oid evtname$ evtevent$ evtowner evtfoid evtenabled$ evttags$[]",
    "pg_default_acl": "oid defaclrole defaclnamespace defaclobjtype$ defaclacl$[]",
    "pg_settings": "name$ setting$ unit$ category$ short_desc$ extra_desc$ context$ vartype$ source$ min_val$ "
    "max_val$ enumvals$[] boot_val$ reset_val$",
    "pg_cursors": "name$ statement$ is_holdable? is_binary? is_scrollable? creation_time$",
    "pg_tables": "schemaname$ tablename$ tableowner$ tablespace$ hasindexes? hasrules? hastriggers? rowsecurity?",
    "pg_views": "schemaname$ viewname$ viewowner$ definition$",
    "pg_matviews": "schemaname$ matviewname$ matviewowner$ tablespace$ hasindexes? ispopulated? definition$",
    "pg_indexes": "schemaname$ tablename$ indexname$ tablespace$ indexdef$",
    "pg_sequences": "schemaname$ sequencename$ sequenceowner$",
    "pg_stat_activity": "datid datname$ pid usesysid usename$ application_name$ client_addr$ state$ query$",
    "pg_prepared_xacts": "transaction gid$ prepared$ owner$ database$",
    "pg_stat_user_tables": "relid schemaname$ relname$ n_live_tup",
    "schemata": "catalog_name$ schema_name$ schema_owner$ default_character_set_name$",
    "tables": "table_catalog$ table_schema$ table_name$ table_type$ is_insertable_into$ is_typed$",
    "views": "table_catalog$ table_schema$ table_name$ view_definition$ check_option$ is_updatable$",
    "columns": "table_catalog$ table_schema$ table_name$ column_name$ ordinal_position column_default$ is_nullable$ "
    "data_type$ character_maximum_length character_octet_length numeric_precision numeric_precision_radix "
    "numeric_scale datetime_precision interval_type$ udt_catalog$ udt_schema$ udt_name$ is_identity$ "
    "is_generated$ generation_expression$ is_updatable$ collation_name$ domain_name$ identity_generation$",
    "table_constraints": "constraint_catalog$ constraint_schema$ constraint_name$ table_catalog$ table_schema$ "
    "table_name$ constraint_type$ is_deferrable$ initially_deferred$",
    "key_column_usage": "constraint_catalog$ constraint_schema$ constraint_name$ table_catalog$ table_schema$ "
    "table_name$ column_name$ ordinal_position position_in_unique_constraint",
    "constraint_column_usage": "table_catalog$ table_schema$ table_name$ column_name$ constraint_catalog$ "
    "constraint_schema$ constraint_name$",
    "referential_constraints": "constraint_catalog$ constraint_schema$ constraint_name$ unique_constraint_schema$ "
    "unique_constraint_name$ match_option$ update_rule$ delete_rule$",
    "routines": "specific_schema$ specific_name$ routine_schema$ routine_name$ routine_type$ data_type$",
    "triggers": "trigger_schema$ trigger_name$ event_object_table$",
    "sequences": "sequence_schema$ sequence_name$",
}  # fmt: skip
#: Types: number, name, name in the standard, bytes, category, and the number of lists of it.
_TYPES = (
    (16, "bool", "boolean", 1, "B", 1000), (17, "bytea", "bytea", -1, "U", 1001), (18, "char", '"char"', 1, "Z", 1002),
    (19, "name", "name", 64, "S", 1003), (20, "int8", "bigint", 8, "N", 1016), (21, "int2", "smallint", 2, "N", 1005),
    (23, "int4", "integer", 4, "N", 1007), (25, "text", "text", -1, "S", 1009), (26, "oid", "oid", 4, "N", 1028),
    (114, "json", "json", -1, "U", 199), (700, "float4", "real", 4, "N", 1021),
    (701, "float8", "double precision", 8, "N", 1022), (705, "unknown", "unknown", -2, "X", 0),
    (1042, "bpchar", "character", -1, "S", 1014), (1043, "varchar", "character varying", -1, "S", 1015),
    (1082, "date", "date", 4, "D", 1182), (1083, "time", "time without time zone", 8, "D", 1183),
    (1114, "timestamp", "timestamp without time zone", 8, "D", 1115),
    (1184, "timestamptz", "timestamp with time zone", 8, "D", 1185), (1186, "interval", "interval", 16, "T", 1187),
    (1700, "numeric", "numeric", -1, "N", 1231), (2205, "regclass", "regclass", 4, "N", 2210),
    (2206, "regtype", "regtype", 4, "N", 2211), (2950, "uuid", "uuid", 16, "U", 2951),
    (3802, "jsonb", "jsonb", -1, "U", 3807),
)  # fmt: skip
_STANDARD = {oid: standard for oid, _, standard, *_ in _TYPES}
_SHORT = {oid: name for oid, name, *_ in _TYPES}
_KINDS = {"r": "BASE TABLE", "v": "VIEW", "m": "MATERIALIZED VIEW"}


@dataclass(frozen=True)
class CatalogRelation:
    """A table, a stream, a view or a query: its kind as PostgreSQL names it, its columns, and their rules."""

    name: str
    kind: str
    columns: tuple[WireColumn, ...]
    key: tuple[str, ...] = ()
    required: frozenset[str] = frozenset()
    #: The query of a view.
    text: str = ""

    @property
    def oid(self) -> int:
        """A number that stays as long as the name does."""
        return 20_000 + 2 * (crc32(self.name.encode()) % (1 << 29))


def columns_of(table: str) -> list[tuple[str, str]]:
    """The names and DuckDB types of a table's columns."""
    return [_parsed(word) for word in TABLES[table].split()]


def _parsed(word: str) -> tuple[str, str]:
    name = word.removesuffix("[]")
    kind = {"?": "BOOLEAN", "$": "VARCHAR"}.get(name[-1], "BIGINT")
    return name.rstrip("?$"), kind + word[len(name) :]


_ARROW = {"BIGINT": pa.int64(), "BOOLEAN": pa.bool_(), "VARCHAR": pa.string()}


def catalog_maps(relations: Sequence[CatalogRelation], settings: Mapping[str, str]) -> dict[str, dict[Any, Any]]:
    """What functions of the catalog look up: names and numbers of relations and types, keys, settings."""
    keyed = [one for one in relations if one.key]
    return {
        "class_names": {one.oid: one.name for one in relations} | {one.oid + 1: f"{one.name}_pkey" for one in keyed},
        "class_oids": {one.name.lower(): one.oid for one in relations},
        "type_oids": {name: kind[0] for kind in _TYPES for name in kind[1:3]},
        "keys": {one.oid + 1: f"({', '.join(one.key)})" for one in keyed},
        "indexes": {
            one.oid + 1: f"CREATE UNIQUE INDEX {one.name}_pkey ON public.{one.name} USING btree ({', '.join(one.key)})"
            for one in keyed
        },
        "key_columns": {f"{one.oid + 1}.{number}": name for one in keyed for number, name in enumerate(one.key, 1)},
        "views": {one.oid: f" {one.text}" for one in relations if one.text},
        "settings": {name.lower(): value for name, value in settings.items()},
    }


def catalog_rows(
    relations: Sequence[CatalogRelation], database: str, user: str, settings: Mapping[str, str], cursors: Sequence[str]
) -> dict[str, pa.Table]:
    """All tables of the catalog."""
    rows: dict[str, Iterable[Mapping[str, Any]]] = {
        **_of_server(database, user, settings),
        **_of_relations(relations, user),
        **_of_standard(relations, database, user),
        "pg_cursors": [
            {"name": name, "is_holdable": False, "is_binary": False, "is_scrollable": False} for name in cursors
        ],
    }
    return {name: _table(name, rows.get(name, ())) for name in TABLES}


def _table(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    given = list(rows)
    arrays = {}
    for column, kind in columns_of(name):
        arrow = _ARROW[kind.removesuffix("[]")]
        arrow = pa.list_(arrow) if kind.endswith("[]") else arrow
        default = False if kind == "BOOLEAN" else None
        arrays[column] = pa.array([row.get(column, default) for row in given], arrow)
    return pa.table(arrays)


def _of_server(database: str, user: str, settings: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    role = {"rolsuper": False, "rolinherit": True, "rolcanlogin": True, "rolconnlimit": -1}
    schemas = ((_PG, "pg_catalog"), (_PUBLIC, "public"), (_INFORMATION, "information_schema"))
    return {
        "pg_namespace": [{"oid": oid, "nspname": name, "nspowner": _OWNER} for oid, name in schemas],
        "pg_database": [
            {
                "oid": _DATABASE, "datname": database, "datdba": _OWNER, "encoding": 6, "datlocprovider": "c",
                "datallowconn": True, "datconnlimit": -1, "dattablespace": 1663, "datcollate": "C", "datctype": "C",
            }
        ],
        "pg_roles": [{"oid": _OWNER, "rolname": user, **role}],
        "pg_user": [{"usename": user, "usesysid": _OWNER}],
        "pg_am": [{"oid": 2, "amname": "heap", "amtype": "t"}, {"oid": 403, "amname": "btree", "amtype": "i"}],
        "pg_collation": [
            {"oid": 100, "collname": "default", "collnamespace": _PG, "collprovider": "d", "collencoding": -1}
        ],
        "pg_tablespace": [{"oid": 1663, "spcname": "pg_default", "spcowner": _OWNER}],
        "pg_settings": [
            {"name": name, "setting": value, "context": "user", "vartype": "string", "source": "default"}
            for name, value in settings.items()
        ],
        "pg_type": [row for kind in _TYPES for row in _type_rows(*kind)],
    }  # fmt: skip


def _type_rows(oid: int, name: str, _: str, size: int, category: str, array: int) -> Iterable[dict[str, Any]]:
    common = {"typnamespace": _PG, "typowner": _OWNER, "typisdefined": True, "typdelim": ",", "typrelid": 0,
              "typbasetype": 0, "typtypmod": -1, "typndims": 0, "typtype": "b", "typnotnull": False,
              "typcollation": 100 if category == "S" else 0}  # fmt: skip
    yield {**common, "oid": oid, "typname": name, "typlen": size, "typcategory": category, "typelem": 0,
           "typarray": array, "typinput": f"{name}in", "typbyval": 0 < size <= 8}  # fmt: skip
    if array:
        yield {**common, "oid": array, "typname": f"_{name}", "typlen": -1, "typcategory": "A", "typelem": oid,
               "typarray": 0, "typinput": "array_in"}  # fmt: skip


def _of_relations(relations: Sequence[CatalogRelation], user: str) -> dict[str, list[dict[str, Any]]]:
    classes = [_class_row(one.oid, one.name, one.kind, len(one.columns), bool(one.key)) for one in relations]
    keyed = [one for one in relations if one.key]
    classes += [_class_row(one.oid + 1, f"{one.name}_pkey", "i", len(one.key), False) for one in keyed]
    attributes = [row for one in relations for row in _attribute_rows(one)]
    return {
        "pg_class": classes,
        "pg_attribute": attributes,
        "pg_index": [
            {
                "indexrelid": one.oid + 1, "indrelid": one.oid, "indnatts": len(one.key), "indnkeyatts": len(one.key),
                "indisunique": True, "indisprimary": True, "indimmediate": True, "indisvalid": True,
                "indisready": True, "indislive": True, "indkey": _key_numbers(one), "indclass": [0] * len(one.key),
                "indcollation": [0] * len(one.key), "indoption": [0] * len(one.key),
            }
            for one in keyed
        ],
        "pg_constraint": [
            {
                "oid": one.oid + 1, "conname": f"{one.name}_pkey", "connamespace": _PUBLIC, "contype": "p",
                "convalidated": True, "conrelid": one.oid, "conindid": one.oid + 1, "contypid": 0, "conparentid": 0,
                "confrelid": 0, "conislocal": True, "coninhcount": 0, "conenforced": True, "conkey": _key_numbers(one),
            }
            for one in keyed
        ],
        "pg_tables": [
            {"schemaname": "public", "tablename": one.name, "tableowner": user, "hasindexes": bool(one.key)}
            for one in relations
            if one.kind == "r"
        ],
        "pg_views": [
            {"schemaname": "public", "viewname": one.name, "viewowner": user} for one in relations if one.kind == "v"
        ],
        "pg_matviews": [
            {"schemaname": "public", "matviewname": one.name, "matviewowner": user, "ispopulated": True}
            for one in relations
            if one.kind == "m"
        ],
    }  # fmt: skip


def _key_numbers(relation: CatalogRelation) -> list[int]:
    names = [column.name for column in relation.columns]
    return [names.index(name) + 1 for name in relation.key if name in names]


def _class_row(oid: int, name: str, kind: str, columns: int, indexed: bool) -> dict[str, Any]:
    return {
        "oid": oid, "relname": name, "relnamespace": _PUBLIC, "reltype": 0, "reloftype": 0, "relowner": _OWNER,
        "relam": 403 if kind == "i" else 2 if kind in ("r", "m") else 0, "relfilenode": 0, "reltablespace": 0,
        "relpages": 0, "reltuples": -1, "reltoastrelid": 0, "relhasindex": indexed, "relpersistence": "p",
        "relkind": kind, "relnatts": columns, "relchecks": 0, "relispopulated": True, "relreplident": "n", "xmin": 1,
    }  # fmt: skip


def _attribute_rows(relation: CatalogRelation) -> Iterable[dict[str, Any]]:
    for number, column in enumerate(relation.columns, 1):
        yield {
            "attrelid": relation.oid, "attname": column.name, "atttypid": column.oid, "attlen": column.size,
            "attnum": number, "attndims": 0, "atttypmod": column.modifier, "attislocal": True, "attinhcount": 0,
            "attnotnull": column.name in relation.required, "attidentity": "", "attgenerated": "",
            "attcollation": 0, "attstorage": "p", "attcompression": "", "attstattarget": -1,
        }  # fmt: skip


def _of_standard(relations: Sequence[CatalogRelation], database: str, user: str) -> dict[str, list[dict[str, Any]]]:
    place = {"table_catalog": database, "table_schema": "public"}
    key = {"constraint_catalog": database, "constraint_schema": "public"}
    keyed = [one for one in relations if one.key]
    return {
        "schemata": [
            {"catalog_name": database, "schema_name": name, "schema_owner": user}
            for name in ("information_schema", "pg_catalog", "public")
        ],
        "tables": [
            {
                **place, "table_name": one.name, "table_type": _KINDS[one.kind], "is_typed": "NO",
                "is_insertable_into": "YES" if one.kind == "r" else "NO",
            }
            for one in relations
        ],
        "views": [
            {**place, "table_name": one.name, "check_option": "NONE", "is_updatable": "NO"}
            for one in relations
            if one.kind == "v"
        ],
        "columns": [
            {**place, "table_name": one.name, **_standard_column(column, number, one), "udt_catalog": database}
            for one in relations
            for number, column in enumerate(one.columns, 1)
        ],
        "table_constraints": [
            {
                **place, **key, "table_name": one.name, "constraint_name": f"{one.name}_pkey",
                "constraint_type": "PRIMARY KEY", "is_deferrable": "NO", "initially_deferred": "NO",
            }
            for one in keyed
        ],
        "key_column_usage": [
            {
                **place, **key, "table_name": one.name, "constraint_name": f"{one.name}_pkey", "column_name": name,
                "ordinal_position": number,
            }
            for one in keyed
            for number, name in enumerate(one.key, 1)
        ],
    }  # fmt: skip


def _standard_column(column: WireColumn, number: int, relation: CatalogRelation) -> dict[str, Any]:
    packed = column.modifier - 4 if column.oid == 1700 and column.modifier > 0 else None
    return {
        "column_name": column.name, "ordinal_position": number, "data_type": _STANDARD[column.oid],
        "udt_schema": "pg_catalog", "udt_name": _SHORT[column.oid], "is_identity": "NO", "is_generated": "NEVER",
        "is_nullable": "NO" if column.name in relation.required else "YES", "is_updatable": "YES",
        "numeric_precision": None if packed is None else packed >> 16,
        "numeric_scale": None if packed is None else packed & 0xFFFF,
    }  # fmt: skip
