// A session of `pg`, Node's most used driver. It gets the path of the package and the address.
import { createRequire } from 'node:module'

const [path, address] = process.argv.slice(2)
const pg = createRequire(import.meta.url)(path)
const place = JSON.parse(address)
const seen = []
const note = (what, value) => seen.push([what, JSON.stringify(value) ?? 'undefined'])
const failing = async (what, call) => {
  try {
    note(what, ['no error', await call()])
  } catch (error) {
    note(what, [error.name, error.code, error.message, error.severity, error.position])
  }
}

const client = new pg.Client(place)
client.on('notice', (notice) => note('notice', [notice.severity, notice.code, notice.message]))
await client.connect()
if (place.only === 'copy') {
  await failing('copy', async () => (await client.query('COPY tickets TO STDOUT')).rowCount)
} else {
  const found = await client.query('SELECT id, title, opened FROM tickets WHERE id < $1 ORDER BY id', [4])
  note('rows', found.rows)
  note('fields', found.fields.map((field) => [field.name, field.dataTypeID]))
  note('command', [found.command, found.rowCount])
  note('as arrays', (await client.query({ text: 'SELECT 1, 2', rowMode: 'array' })).rows)
  note('kinds', (await client.query('SELECT * FROM kinds ORDER BY id')).rows)
  note('large', (await client.query('SELECT * FROM numbers')).rows.length)
  note('named', (await client.query({ name: 'a', text: 'SELECT $1::int', values: [1] })).rows)
  note('named again', (await client.query({ name: 'a', text: 'SELECT $1::int', values: [2] })).rows)
  await failing('no column', () => client.query('SELECT nothing FROM tickets'))
  await failing('division, with a value', () => client.query('SELECT 1 / $1::int', [0]))
  await client.query('BEGIN')
  await client.query('SAVEPOINT s')
  await failing('in a savepoint', () => client.query('SELECT 1/0'))
  await failing('aborted', () => client.query('SELECT 1'))
  await client.query('ROLLBACK TO SAVEPOINT s')
  note('after the savepoint', (await client.query('SELECT 2 AS two')).rows)
  await client.query('COMMIT')
  await client.query("SELECT public.remark('from pg')")
  note('at once', await Promise.all([1, 2, 3].map(async (n) => (await client.query('SELECT $1::int AS n', [n])).rows)))
  const pool = new pg.Pool({ ...place, max: 3 })
  const titles = [...Array(12).keys()].map((n) => pool.query('SELECT title FROM tickets WHERE id = $1', [n]))
  note('by a pool', (await Promise.all(titles)).map((result) => result.rows))
  await pool.end()
}
note('afterwards', (await client.query('SELECT 3 AS three')).rows)
await client.end()
console.log(JSON.stringify(seen))
