// What a relay keeps of its channels and members over starts, and what the commands print.
import Cryptography
import Glibc
import Logging
import RelayProtocol
import RelayServer
import RelayStore
import SQLite
import Testing

@testable import pttrelay

@Suite struct MemberStateTests {
    @Test func `the channels of an earlier version are taken over with their links, once`() throws {
        let folder = try StateFolder()
        let id = ChannelID()
        let token = InvitationToken()
        let text = """
            [last-start]
            host = "relay.example"
            port = 5000

            [[channel]]
            name = "Yard \\"2\\""
            id = "\(id)"
            token = "\(Base64URL.encode(token.bytes))"
            """
        let file = fopen(folder.path + "/channels.toml", "w")
        fputs(text, file)
        fclose(file)
        for _ in 0..<2 {
            let state = try RelayState.open(folder.path, logger: quiet("state"))
            let channels = try state.channels(named: [])
            #expect(channels.map(\.id) == [id] && channels.map(\.name.text) == ["Yard \"2\""])
            let link = try state.standingInvitation(
                channels[0], host: try #require(try state.host()), port: 5_000, web: WebPlace(port: 443))
            #expect(link?.web == WebPlace("443"))
            #expect(link?.token == token && link?.host == "relay.example")
        }
        #expect(access(folder.path + "/channels.toml", F_OK) != 0)
        #expect(access(folder.path + "/channels.toml.taken-over", F_OK) == 0)
    }

    @Test func `who only looks at the state changes no file that the relay's user has to read`() throws {
        let folder = try StateFolder()
        do { _ = try RelayState.open(folder.path, logger: quiet("state")) }
        let path = folder.path + "/transport.key"
        let old = timeval(tv_sec: time(nil) - 30 * 86_400, tv_usec: 0)
        #expect(utimes(path, [old, old]) == 0)
        let state = try RelayState.existing(folder.path, logger: quiet("state"))
        #expect(state.transportKeys == nil)
        var status = stat()
        #expect(stat(path, &status) == 0 && status.st_mtim.tv_sec == old.tv_sec)
        if geteuid() == 0 {
            // Root makes the records for the user whose directory it is.
            let other = try StateFolder()
            #expect(chown(other.path, 12_345, 12_345) == 0)
            _ = try RelayStore.open(path: other.path + "/relay.sqlite")
            #expect(stat(other.path + "/relay.sqlite", &status) == 0 && status.st_uid == 12_345)
            #expect(stat(other.path + "/relay.sqlite-wal", &status) != 0 || status.st_uid == 12_345)
        }
    }

    @Test func `channels that commands added are served beside those that are named`() throws {
        let folder = try StateFolder()
        let state = try RelayState.open(folder.path, logger: quiet("state"))
        #expect(throws: RelayStateError.self) { try state.channels(named: []) }
        #expect(throws: RelayStateError.self) { try state.channels(named: ["\u{7}"]) }
        let named = try state.channels(named: ["A", "B", "A"])
        #expect(named.map(\.name.text) == ["A", "B"])
        try state.store.addChannel(DisplayName("Secret")!, isEndToEnd: true, isAdded: true, now: 1)
        let served = try state.channels(named: ["B"])
        #expect(served.map(\.name.text) == ["B", "Secret"] && served.map(\.isEndToEnd) == [false, true])
        #expect(served[0].id == named[1].id)
    }

    @Test func `without names those channels are served that were last, and none that was left out since`() async throws
    {
        let folder = try StateFolder()
        let state = try RelayState.open(folder.path, logger: quiet("state"))
        let registrar = try Registrar(state: state, logger: quiet("members"))
        func start(_ names: [String]) async throws -> [String] {
            let channels = try state.channels(named: names)
            try await registrar.started(host: "a", port: 1, channels: channels.map(\.id))
            return channels.map(\.name.text).sorted()
        }
        #expect(try await start(["A", "B"]) == ["A", "B"])
        #expect(try await start([]) == ["A", "B"])
        #expect(try await start(["B", "C"]) == ["B", "C"])
        #expect(try await start([]) == ["B", "C"], "A was taken out")
        try state.store.addChannel(DisplayName("Secret")!, isEndToEnd: true, isAdded: true, now: 1)
        #expect(try await start(["A"]) == ["A", "Secret"])
        #expect(try await start([]) == ["A", "Secret"])
        // One that was named for a start that failed was never served.
        _ = try state.channels(named: ["D"])
        #expect(try await start([]) == ["A", "Secret"])
        #expect(try state.store.channels().count == 5, "all are kept, with their members")
    }

    @Test func `without a relay, damaged records are refused by their name, and left as they are`() async throws {
        let folder = try StateFolder()
        do {
            let state = try RelayState.open(folder.path, logger: quiet("state"))
            let channel = try #require(try state.channels(named: ["Team"]).first)
            let key = MemberID(try Identity(generating: "ada").pin)
            let token = try #require(try state.store.standingToken(of: channel.id))
            _ = try state.store.enrol(key, named: DisplayName("Ada")!, with: token, in: channel.id, now: 1)
        }
        let file = folder.path + "/relay.sqlite"
        let database = try DatabaseFile(path: file)
        try database.write { try $0.execute("UPDATE member SET id = substr(id, 3)") }
        try database.close()
        for open in [RelayState.existing, { try RelayState.open($0, logger: $1) }] {
            let error = #expect(throws: RelayStoreError.self) { _ = try open(folder.path, quiet("state")) }
            #expect(error.map { "\($0)".contains(file) && "\($0)".contains("is damaged") } == true, "\(error as Any)")
        }
        let descriptor = Glibc.open(file, O_WRONLY | O_TRUNC)
        let junk = [UInt8](repeating: 0xA5, count: 4_096)
        #expect(write(descriptor, junk, junk.count) == junk.count)
        close(descriptor)
        for suffix in ["-wal", "-shm"] { unlink(file + suffix) }
        #expect(throws: RelayStoreError.self) { _ = try RelayState.existing(folder.path, logger: quiet("state")) }
        #expect(access(file + ".damaged-1", F_OK) != 0)
    }
}

@Suite struct InvitationCommandTests {
    @Test func `a QR code has its three finders, and each module is half a sign`() throws {
        let code = try #require(QRCode("ptt://relay.example:4433/Team?channel=x"))
        let finder = ["1111111", "1000001", "1011101", "1011101", "1011101", "1000001", "1111111"]
        for (row, column) in [(0, 0), (0, code.size - 7), (code.size - 7, 0)] {
            for (line, pattern) in finder.enumerated() {
                let found = (0..<7).map { code.isDark[(row + line) * code.size + column + $0] ? "1" : "0" }.joined()
                #expect(found == pattern)
            }
        }
        // Drawn and read back.
        let lines = code.lines
        #expect(lines.count == (code.size + 2 * QRCode.margin + 1) / 2)
        var drawn: [Bool] = []
        for row in 0..<code.size {
            let line = Array(lines[(row + QRCode.margin) / 2].dropFirst("\u{1B}[97;40m".count))
            for column in 0..<code.size {
                let sign = line[column + QRCode.margin]
                drawn.append(!((row + QRCode.margin) % 2 == 0 ? "█▀" : "█▄").contains(sign))
            }
        }
        #expect(drawn == code.isDark)
        #expect(QRCode(String(repeating: "x", count: 5_000)) == nil)
    }

    @Test func `times of invitations are read with their units`() {
        #expect(InviteCommand.lifetime("30min") == 1_800)
        #expect(InviteCommand.lifetime("24h") == 86_400)
        #expect(InviteCommand.lifetime("7d") == 604_800)
        #expect(InviteCommand.lifetime("2w") == 1_209_600)
        for text in [
            "", "7", "d", "0h", "-1h", "9999d", "99999999999999999999h", "9000000000000000000d", "1m", "1 h", "½h",
        ] {
            #expect(InviteCommand.lifetime(text) == nil, "\(text)")
        }
    }

    @Test func `rows are printed in columns, and names cannot reach the terminal`() {
        #expect(table([["A", "B"], ["long", ""], ["\u{1B}[2J", "x"]]) == ["A     B", "long", "\u{FFFD}[2J  x"])
        #expect(timeText(0).hasPrefix("19"))
    }
}
