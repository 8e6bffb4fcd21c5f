"""Exports a tenant's log as a file that can be verified elsewhere (`policies.trail.log_file`).

    export = await open_export(store, tenant_id, wanted, ring)
    async for piece in export.pieces(): ...

`place` turns `from` and `to` into entries and finds the tree before them; `rows` reads the entries'
lines, page by page, and pauses in favour of evaluations on a busy service; `file` puts the file
together; `ending` writes its last lines.
"""
