// A session of `postgres.js`, which pipelines. It gets the path of the package and the address.
import { createRequire } from 'node:module'

const [path, address] = process.argv.slice(2)
const postgres = createRequire(import.meta.url)(path)
const place = JSON.parse(address)
const seen = []
const note = (what, value) => seen.push([what, JSON.stringify(value) ?? 'undefined'])
const failing = async (what, call) => {
  try {
    note(what, ['no error', await call()])
  } catch (error) {
    note(what, [error.name, error.code, error.message, error.severity_local])
  }
}

const sql = postgres({
  ...place,
  username: place.user,
  max: 3,
  onnotice: (notice) => note('notice', [notice.severity, notice.code, notice.message])
})
if (place.only === 'copy') {
  await failing('copy', async () => {
    let bytes = 0
    for await (const chunk of await sql`COPY tickets TO STDOUT`.readable()) bytes += chunk.length
    return bytes
  })
} else {
  const below = 4
  const found = await sql`SELECT id, title, opened FROM tickets WHERE id < ${below} ORDER BY id`
  note('rows', found)
  note('columns', found.columns.map((column) => [column.name, column.type]))
  note('command', [found.command, found.count])
  note('kinds', await sql`SELECT * FROM kinds ORDER BY id`)
  note('large', (await sql`SELECT * FROM numbers`).length)
  note('in a list', await sql`SELECT title FROM tickets WHERE id IN ${sql([1, 2])} ORDER BY id`)
  note('array', await sql`SELECT ${[1, 2]}::int[] AS a`)
  note('simple', await sql`SELECT 1 AS one`.simple())
  note('described', (await sql`SELECT id FROM tickets WHERE id = ${1}`.describe()).types)
  await failing('no column', () => sql`SELECT nothing FROM tickets`)
  await failing('division', () => sql`SELECT 1 / ${0}::int`)
  await failing('transaction', () =>
    sql.begin(async (own) => {
      await failing('in a savepoint', () => own.savepoint((inner) => inner`SELECT 1/0`))
      note('after the savepoint', await own`SELECT 2 AS two`)
      return own`SELECT 1/0`
    })
  )
  note('pipelined', await sql.begin((own) => [1, 2, 3].map((n) => own`SELECT ${n}::int AS n`)))
  let sum = 0
  await sql`SELECT n FROM numbers`.cursor(900, (rows) => { for (const row of rows) sum += row.n })
  note('by a cursor', sum)
  await sql`SELECT public.remark('from postgres.js')`
  const titles = [...Array(12).keys()].map((n) => sql`SELECT title FROM tickets WHERE id = ${n}`)
  note('at once', await Promise.all(titles))
}
note('afterwards', await sql`SELECT 3 AS three`)
await sql.end()
console.log(JSON.stringify(seen))
