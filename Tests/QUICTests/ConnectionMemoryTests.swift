import CLinux
import Glibc
import TestSupport
import Testing

/// The memory under accepted connections.
@Suite struct ConnectionMemoryTests {
    /// A piece that was given out, and what was written there.
    private struct Piece {
        var address: UnsafeMutableRawPointer
        var bytes: [UInt8]

        func isIntact() -> Bool {
            bytes.withUnsafeBytes { expected in
                guard let base = expected.baseAddress else { return true }
                return memcmp(base, address, expected.count) == 0
            }
        }

        /// Writes at both ends: what lies between is often reserved and not used.
        mutating func write(_ generator: inout SeededGenerator) {
            let length = min(bytes.count, Int.random(in: 0...200, using: &generator))
            for index in (0..<length).map({ Bool.random(using: &generator) ? $0 : bytes.count - 1 - $0 }) {
                bytes[index] = UInt8.random(in: 0...255, using: &generator)
                address.storeBytes(of: bytes[index], toByteOffset: index, as: UInt8.self)
            }
        }
    }

    private static func size(_ generator: inout SeededGenerator) -> Int {
        switch Int.random(in: 0..<20, using: &generator) {
        case 0: Int.random(in: 20_000...90_000, using: &generator)
        case 1...6: Int.random(in: 2_000...13_000, using: &generator)
        default: Int.random(in: 0...800, using: &generator)
        }
    }

    /// One owner on the stage, and what it has.
    private struct Owner {
        let memory: OpaquePointer
        var pieces: [Piece] = []
        var user: UnsafeMutableRawPointer { UnsafeMutableRawPointer(memory) }

        mutating func step(_ generator: inout SeededGenerator) throws {
            ptt_memory_enter(memory)
            #expect(pieces.allSatisfy { $0.isIntact() })
            for _ in 0..<Int.random(in: 1...8, using: &generator) {
                let index = pieces.indices.randomElement(using: &generator)
                switch (Int.random(in: 0..<8, using: &generator), index) {
                case (0..<3, _) where pieces.count < 40:
                    let size = ConnectionMemoryTests.size(&generator)
                    let isCleared = Bool.random(using: &generator)
                    let address = try #require(
                        isCleared ? ptt_memory_calloc(1, size, user) : ptt_memory_malloc(size, user))
                    #expect(Int(bitPattern: address) % 16 == 0)
                    if !isCleared { memset(address, 0, size) }
                    pieces.append(Piece(address: address, bytes: Array(repeating: 0, count: size)))
                case (3..<5, let index?):
                    ptt_memory_release(pieces.remove(at: index).address, user)
                case (5, let index?):
                    let size = ConnectionMemoryTests.size(&generator)
                    let address = try #require(ptt_memory_realloc(pieces[index].address, size, user))
                    let stays = min(size, pieces[index].bytes.count)
                    memset(address + stays, 0, size - stays)
                    pieces[index].address = address
                    pieces[index].bytes = pieces[index].bytes.prefix(stays) + Array(repeating: 0, count: size - stays)
                case (_, let index?): pieces[index].write(&generator)
                default: break
                }
            }
            #expect(pieces.allSatisfy { $0.isIntact() })
            // No two overlap.
            let sorted = pieces.filter { !$0.bytes.isEmpty }.sorted { $0.address < $1.address }
            #expect(zip(sorted, sorted.dropFirst()).allSatisfy { $0.address + $0.bytes.count <= $1.address })
        }

        func end() {
            ptt_memory_enter(memory)
            #expect(pieces.allSatisfy { $0.isIntact() })
            for piece in pieces { ptt_memory_release(piece.address, user) }
            ptt_memory_free(memory)
        }
    }

    @Test(arguments: 1...4 as ClosedRange<UInt64>)
    func `owners who share addresses find what they wrote`(seed: UInt64) throws {
        var generator = SeededGenerator(seed: seed)
        let stage = try #require(ptt_stage_make(64, 24))
        // More than there are places.
        var owners = try (0..<200).map { _ in Owner(memory: try #require(ptt_memory_make(stage))) }
        for _ in 0..<1_500 {
            let index = Int.random(in: owners.indices, using: &generator)
            try owners[index].step(&generator)
            guard Int.random(in: 0..<40, using: &generator) == 0 else { continue }
            owners[index].end()
            owners[index] = Owner(memory: try #require(ptt_memory_make(stage)))
        }
        for owner in owners { owner.end() }
        ptt_stage_free(stage)
    }

    @Test func `who is not there takes no more than what it has written`() throws {
        let stage = try #require(ptt_stage_make(64, 24))
        let memory = try #require(ptt_memory_make(stage))
        let user = UnsafeMutableRawPointer(memory)
        ptt_memory_enter(memory)
        // Pools of which only the beginning is used, as the QUIC library has many.
        let pools = try (0..<10).map { _ in try #require(ptt_memory_calloc(1, 8_000, user)) }
        let freed = try #require(ptt_memory_malloc(20_000, user))
        let last = try #require(ptt_memory_malloc(100, user))
        for pool in pools { memset(pool, 7, 300) }
        memset(freed, 9, 20_000)
        ptt_memory_release(freed, user)
        #expect(ptt_memory_is_there(memory) != 0)
        ptt_memory_leave(memory)
        #expect(ptt_memory_is_there(memory) == 0)
        let kept = ptt_memory_kept(memory)
        #expect(kept > 10 * 300 && kept < 10 * 500)
        ptt_memory_enter(memory)
        for pool in pools {
            let bytes = UnsafeRawBufferPointer(start: pool, count: 8_000)
            #expect(bytes.prefix(300).allSatisfy { $0 == 7 } && bytes.dropFirst(300).allSatisfy { $0 == 0 })
            ptt_memory_release(pool, user)
        }
        ptt_memory_release(last, user)
        ptt_memory_free(memory)
        ptt_stage_free(stage)
    }

    @Test func `what does not fit is somewhere else, and is whole`() throws {
        let stage = try #require(ptt_stage_make(64, 24))
        var owner = Owner(memory: try #require(ptt_memory_make(stage)))
        ptt_memory_enter(owner.memory)
        for number in 0..<60 {
            let size = number == 0 ? 1 << 20 : 10_000
            let address = try #require(ptt_memory_malloc(size, owner.user))
            memset(address, Int32(number), size)
            owner.pieces.append(Piece(address: address, bytes: Array(repeating: UInt8(number), count: size)))
        }
        ptt_memory_leave(owner.memory)
        owner.end()
        ptt_stage_free(stage)
    }
}
