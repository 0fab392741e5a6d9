// What a start does with each damaged file of its state: the table of docs/operators.md.
import Cryptography
import Files
import Glibc
import Logging
import QUIC
import Reactor
import RelayHTTP
import RelayServer
import RelayStore
import TestSupport
import Testing

@testable import pttrelay

@Suite struct StateDecisionTests {
    /// Bytes as a failing disk, an interrupted copy or an editor leaves them.
    static func damaged(_ bytes: [UInt8], _ random: inout SeededGenerator) -> [UInt8] {
        var result = bytes
        switch Int.random(in: 0..<6, using: &random) {
        case 0: result = []
        case 1: result = Array(result.prefix(Int.random(in: 0..<max(1, result.count), using: &random)))
        case 2:
            result = (0..<Int.random(in: 1...9_000, using: &random)).map { _ in .random(in: 0...255, using: &random) }
        case 3: result += [UInt8](repeating: 0, count: Int.random(in: 1...70_000, using: &random))
        case 4:
            let start = Int.random(in: 0..<max(1, result.count), using: &random)
            for index in result.indices.dropFirst(start).prefix(512) { result[index] = 0 }
        default:
            for _ in 0..<Int.random(in: 1...8, using: &random) where !result.isEmpty {
                result[Int.random(in: result.indices, using: &random)] ^= 1 << UInt8.random(in: 0...7, using: &random)
            }
        }
        return result
    }

    private static let files = [
        "identity.pem", "transport.key", "operator.token", "api.token", "push-server.pem", "relay.sqlite",
    ]

    /// A relay's state after a first start.
    private func made(_ folder: StateFolder) throws -> (identity: Identity, files: [String: [UInt8]]) {
        let state = try RelayState.open(folder.path, logger: quiet("state"))
        _ = try state.channels(named: ["Team"])
        _ = (state.token(for: .page, quiet("state")), state.token(for: .api, quiet("state")))
        _ = try state.serverIdentity([.host("localhost")], logger: quiet("state"))
        let identity = state.identity
        var files: [String: [UInt8]] = [:]
        try state.store.close()
        for name in Self.files { files[name] = try RegularFile.read(folder.path + "/" + name, byteCountMax: 1 << 20) }
        return (identity, files)
    }

    private func restore(_ files: [String: [UInt8]], in folder: StateFolder) throws {
        for name in folder.names where !name.hasPrefix(".") { unlink(folder.path + "/" + name) }
        for (name, bytes) in files {
            try AtomicFile.write(bytes, to: folder.path + "/" + name, isSecret: true, waits: false)
        }
    }

    @Test(.timeLimit(.minutes(5)), arguments: files)
    func `a damaged file stops a start for good, or is made anew, as the table says`(name: String) throws {
        let folder = try StateFolder()
        let (identity, files) = try made(folder)
        let good = try #require(files[name])
        var random = SeededGenerator()
        var replaced = 0
        for round in 0..<200 {
            try restore(files, in: folder)
            try AtomicFile.write(
                Self.damaged(good, &random), to: folder.path + "/" + name, isSecret: true, waits: false)
            let place = "\(name), round \(round)"
            do {
                let state = try RelayState.open(folder.path, logger: quiet("state"))
                _ = (state.token(for: .page, quiet("state")), state.token(for: .api, quiet("state")))
                _ = try state.serverIdentity([.host("localhost")], logger: quiet("state"))
                #expect(state.identity.pin == identity.pin, "\(place): the relay has another key")
                #expect(try state.store.channels().count == 1, "\(place): the relay has other records")
                if folder.names.contains("\(name).damaged-1") { replaced += 1 }
                try state.store.close()
            } catch {
                #expect(["identity.pem", "relay.sqlite"].contains(name), "\(place): \(error)")
                #expect(StartFailure.status(error) == configurationMistake, "\(place): \(error)")
                #expect("\(error)".contains(folder.path + "/" + name), "\(place): \(error)")
                #expect("\(error)".contains("begin-anew"), "\(place): \(error)")
                #expect(!folder.names.contains { $0.contains("damaged") }, "\(place): it was moved")
            }
        }
        #expect(["identity.pem", "relay.sqlite"].contains(name) ? replaced == 0 : replaced > 50, "\(replaced)")
    }

    @Test func `a lost key or lost records are not begun anew without being told to`() throws {
        for part in RelayState.Part.allCases {
            let folder = try StateFolder()
            let (identity, _) = try made(folder)
            let path = folder.path + (part == .identity ? "/identity.pem" : "/relay.sqlite")
            #expect(unlink(path) == 0)
            let start = { (path: String, logger: Logger) in try RelayState.open(path, logger: logger) }
            for open in part == .identity ? [start] : [start, RelayState.existing] {
                let error = #expect(throws: (any Error).self) { _ = try open(folder.path, quiet("state")) }
                let words = error.map { "\($0)" } ?? ""
                #expect(words.contains(path) && words.contains("begin-anew \(part.rawValue)"), "\(words)")
                #expect(error.map { StartFailure.mayPass($0) } == false)
            }
            #expect(!folder.names.contains(part == .identity ? "identity.pem" : "relay.sqlite"))
            #expect(try RelayState.beginAnew(part, in: folder.path) == nil)
            let state = try RelayState.open(folder.path, logger: quiet("state"))
            #expect((state.identity.pin == identity.pin) == (part == .records))
            #expect(try state.store.channels().count == (part == .records ? 0 : 1))
        }
    }

    @Test func `what is begun anew keeps what was there under another name`() throws {
        let folder = try StateFolder()
        _ = try made(folder)
        #expect(try RelayState.beginAnew(.identity, in: folder.path) == folder.path + "/identity.pem.old-1")
        #expect(try RelayState.beginAnew(.identity, in: folder.path) == folder.path + "/identity.pem.old-2")
        #expect(try RelayState.beginAnew(.records, in: folder.path) == folder.path + "/relay.sqlite.old-1")
        let lock = try DirectoryLock(folder.path)
        #expect(throws: FileError.self) { try RelayState.beginAnew(.records, in: folder.path) }
        withExtendedLifetime(lock) {}
        let nowhere = try StateFolder()
        #expect(throws: RelayStateError.self) { try RelayState.beginAnew(.records, in: nowhere.path) }
    }

    @Test func `a pipe or a directory in place of a file is an error or is set aside, and nobody waits`() throws {
        for name in Self.files {
            for isPipe in [true, false] {
                let folder = try StateFolder()
                _ = try made(folder)
                let path = folder.path + "/" + name
                #expect(unlink(path) == 0)
                #expect(isPipe ? mkfifo(path, 0o600) == 0 : mkdir(path, 0o700) == 0)
                defer { rmdir(path) }
                do {
                    let state = try RelayState.open(folder.path, logger: quiet("state"))
                    _ = (state.token(for: .page, quiet("state")), state.token(for: .api, quiet("state")))
                    _ = try state.serverIdentity([.host("localhost")], logger: quiet("state"))
                    #expect(folder.names.contains("\(name).damaged-1"))
                    rmdir("\(path).damaged-1")
                } catch {
                    #expect(["identity.pem", "relay.sqlite"].contains(name), "\(name): \(error)")
                    #expect("\(error)".contains(isPipe ? "a pipe" : "a directory"), "\(error)")
                    #expect(!StartFailure.mayPass(error))
                }
            }
        }
    }

    @Test func `what may pass is tried again, and what a person has to mend is not`() {
        func status(_ cause: FileError.Cause) -> Bool { StartFailure.mayPass(FileError("read", "/x", cause)) }
        #expect(status(.diskFull) && status(.readOnly) && status(.tooManyOpenFiles) && status(.inUse(process: 7)))
        #expect(status(.system(EIO)) && status(.danglingLink))
        #expect(!status(.noPermission) && !status(.missing) && !status(.notRegular(.pipe)))
        #expect(StartFailure.mayPass(RelayStoreError.notNow(path: "/x", why: "")))
        #expect(!StartFailure.mayPass(RelayStoreError.missing(path: "/x")))
        #expect(!StartFailure.mayPass(RelayStateError(description: "")))
        #expect(!StartFailure.mayPass(PushEndpointError.certificate("")))
        #expect(
            StartFailure.mayPass(
                RelayServerError.listen("", .socket(SystemError("bind", code: EADDRINUSE), during: ""))))
        #expect(
            !StartFailure.mayPass(RelayServerError.listen("", .socket(SystemError("bind", code: EACCES), during: ""))))
        #expect(!StartFailure.mayPass(RelayServerError.tooManyChannels(limit: 1)))
    }
}
