"""Which nodes of libpg_query's parse trees a statement may consist of. Any other closes it."""

from __future__ import annotations

from sidecar.protocols.postgres.names import words

# What may stand in a query: its expressions, and the clauses around them.
QUERY_NODES = words("""
Alias RangeVar RangeSubselect RangeFunction RangeTableFunc RangeTableFuncCol RangeTableSample
ColumnDef JoinExpr SelectStmt InsertStmt UpdateStmt DeleteStmt MergeStmt MergeWhenClause WithClause
CommonTableExpr CTESearchClause CTECycleClause LockingClause OnConflictClause InferClause IndexElem
ReturningClause ReturningOption ResTarget MultiAssignRef SetToDefault CurrentOfExpr SortBy WindowDef
GroupingSet GroupingFunc TypeName TypeCast CollateClause ColumnRef ParamRef A_Expr A_Const A_Star
A_Indices A_Indirection A_ArrayExpr FuncCall NamedArgExpr BoolExpr SubLink CaseExpr CaseWhen
CoalesceExpr MinMaxExpr RowExpr NullTest BooleanTest SQLValueFunction MergeSupportFunc XmlExpr
XmlSerialize List String Integer
JsonFormat JsonReturning JsonOutput JsonArgument JsonValueExpr JsonKeyValue JsonFuncExpr
JsonBehavior JsonIsPredicate JsonParseExpr JsonScalarExpr JsonSerializeExpr JsonObjectConstructor
JsonArrayConstructor JsonArrayQueryConstructor JsonAggConstructor JsonObjectAgg JsonArrayAgg
JsonTable JsonTablePathSpec JsonTableColumn
""")

# A member of these types has its node's members, without the node's type around them.
TYPED_MEMBERS: dict[str, dict[str, str]] = {
    "RangeVar": {"alias": "Alias"},
    "RangeSubselect": {"alias": "Alias"},
    "RangeFunction": {"alias": "Alias"},
    "RangeTableFunc": {"alias": "Alias"},
    "RangeTableFuncCol": {"typeName": "TypeName"},
    "ColumnDef": {"typeName": "TypeName", "collClause": "CollateClause"},
    "JoinExpr": {"join_using_alias": "Alias", "alias": "Alias"},
    "TypeCast": {"typeName": "TypeName"},
    "FuncCall": {"over": "WindowDef"},
    "XmlSerialize": {"typeName": "TypeName"},
    "SelectStmt": {"withClause": "WithClause", "larg": "SelectStmt", "rarg": "SelectStmt"},
    "InsertStmt": {
        "relation": "RangeVar",
        "withClause": "WithClause",
        "onConflictClause": "OnConflictClause",
        "returningClause": "ReturningClause",
    },
    "UpdateStmt": {
        "relation": "RangeVar",
        "withClause": "WithClause",
        "returningClause": "ReturningClause",
    },
    "DeleteStmt": {
        "relation": "RangeVar",
        "withClause": "WithClause",
        "returningClause": "ReturningClause",
    },
    "MergeStmt": {
        "relation": "RangeVar",
        "withClause": "WithClause",
        "returningClause": "ReturningClause",
    },
    "OnConflictClause": {"infer": "InferClause"},
    "CommonTableExpr": {"search_clause": "CTESearchClause", "cycle_clause": "CTECycleClause"},
    "JsonReturning": {"format": "JsonFormat"},
    "JsonOutput": {"typeName": "TypeName", "returning": "JsonReturning"},
    "JsonArgument": {"val": "JsonValueExpr"},
    "JsonValueExpr": {"format": "JsonFormat"},
    "JsonKeyValue": {"value": "JsonValueExpr"},
    "JsonIsPredicate": {"format": "JsonFormat"},
    "JsonFuncExpr": {
        "context_item": "JsonValueExpr",
        "output": "JsonOutput",
        "on_empty": "JsonBehavior",
        "on_error": "JsonBehavior",
    },
    "JsonParseExpr": {"expr": "JsonValueExpr", "output": "JsonOutput"},
    "JsonScalarExpr": {"output": "JsonOutput"},
    "JsonSerializeExpr": {"expr": "JsonValueExpr", "output": "JsonOutput"},
    "JsonObjectConstructor": {"output": "JsonOutput"},
    "JsonArrayConstructor": {"output": "JsonOutput"},
    "JsonArrayQueryConstructor": {"output": "JsonOutput", "format": "JsonFormat"},
    "JsonAggConstructor": {"output": "JsonOutput", "over": "WindowDef"},
    "JsonObjectAgg": {"constructor": "JsonAggConstructor", "arg": "JsonKeyValue"},
    "JsonArrayAgg": {"constructor": "JsonAggConstructor", "arg": "JsonValueExpr"},
    "JsonTable": {
        "context_item": "JsonValueExpr",
        "pathspec": "JsonTablePathSpec",
        "on_error": "JsonBehavior",
        "alias": "Alias",
    },
    "JsonTableColumn": {
        "typeName": "TypeName",
        "pathspec": "JsonTablePathSpec",
        "format": "JsonFormat",
        "on_empty": "JsonBehavior",
        "on_error": "JsonBehavior",
    },
}

# Newer versions of the grammar have syntax of its own for these; older servers call a function of
# that name, which somebody may have made.
FUNCTIONS_BY_SYNTAX: dict[str, tuple[str, ...]] = {
    "MergeSupportFunc": ("merge_action",),
    "JsonFuncExpr": ("json_exists", "json_query", "json_value"),
    "JsonParseExpr": ("json",),
    "JsonScalarExpr": ("json_scalar",),
    "JsonSerializeExpr": ("json_serialize",),
    "JsonObjectConstructor": ("json_object",),
    "JsonArrayConstructor": ("json_array",),
    "JsonArrayQueryConstructor": ("json_array",),
    "JsonObjectAgg": ("json_objectagg",),
    "JsonArrayAgg": ("json_arrayagg",),
    "JsonTable": ("json_table",),
}

_WORDS = {
    "AlterOwnerStmt": "ALTER … OWNER",
    "AlterTableMoveAllStmt": "ALTER … ALL IN TABLESPACE",
    "CheckPointStmt": "CHECKPOINT",
    "CompositeTypeStmt": "CREATE TYPE",
    "ConstraintsSetStmt": "SET CONSTRAINTS",
    "CreateStmt": "CREATE TABLE",
    "CreateTrigStmt": "CREATE TRIGGER",
    "CreatedbStmt": "CREATE DATABASE",
    "DefineStmt": "CREATE",
    "DropdbStmt": "DROP DATABASE",
    "GrantRoleStmt": "GRANT",
    "IndexStmt": "CREATE INDEX",
    "RenameStmt": "ALTER … RENAME",
    "RuleStmt": "CREATE RULE",
    "SecLabelStmt": "SECURITY LABEL",
    "ViewStmt": "CREATE VIEW",
}


def words_of(node_type: str) -> str:
    """Return the SQL words for a type of statement, for example `ALTER SYSTEM`."""
    if node_type in _WORDS:
        return _WORDS[node_type]
    name = node_type.removesuffix("Stmt")
    return "".join(f" {letter}" if letter.isupper() else letter for letter in name).strip().upper()
