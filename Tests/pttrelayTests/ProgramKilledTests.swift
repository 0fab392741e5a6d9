// The program is killed at random instants: nothing that a command confirmed is lost, nothing that was ended comes back.
import Cryptography
import Glibc
import RelayProtocol
import TestSupport
import Testing

@testable import pttrelay

private typealias Change = ProgramRecords.Change

private let rounds = getenv("PTT_PROGRAM_KILLS").flatMap { Int(String(cString: $0)) } ?? 20

@Suite struct ProgramKilledTests {
    @Test(.timeLimit(.minutes(max(3, rounds / 10))))
    func `a kill at any instant loses nothing that a command confirmed, and opens nothing again`() async throws {
        var trial = Trial(folder: try StateFolder(), random: SeededGenerator())
        for round in 0..<rounds {
            let underWay = try await trial.run(round)
            let program = try await trial.check(underWay, "round \(round)")
            if trial.random.chance(50) { try await trial.admit("Ada-\(round)", program) }
            program.end()
        }
        print("\(trial.count) changes were confirmed in \(rounds) rounds")
        #expect(trial.count > 0)
        let program = try await trial.check([], "the end")
        try await trial.visit(program)
    }

    @Test(.timeLimit(.minutes(max(3, rounds / 10))))
    func `what a first start has made when it is killed is what every later one has`() async throws {
        var random = SeededGenerator()
        for round in 0..<max(1, rounds / 2) {
            let folder = try StateFolder()
            var kept = ProgramIdentity()
            for start in ["first", "second"] {
                let program = try RunningProgram(in: folder, isAwaited: false)
                _ = await program.end(after: .microseconds(Int.random(in: 0...150_000, using: &random)))
                try kept.compare(program, "round \(round), the \(start) start")
            }
            let program = try RunningProgram(in: folder)
            try kept.compare(program, "round \(round), the last start")
            let listed = try await ProgramRecords.listed(by: program)
            #expect(listed == ProgramRecords(), "round \(round)")
        }
    }
}

/// The rounds on one state directory.
private struct Trial {
    let folder: StateFolder
    var random: SeededGenerator
    /// Changes that commands confirmed in rounds.
    var count = 0
    private var confirmed = ProgramRecords()
    private var kept = ProgramIdentity()
    private var identities: [String: Identity] = [:]
    /// An invitation by which one more device can come.
    private var door: (number: Int64, link: InvitationLink)?

    init(folder: StateFolder, random: SeededGenerator) { (self.folder, self.random) = (folder, random) }

    /// Runs the program, and commands and maybe a device with it, until it is killed.
    ///
    /// - Returns: What had begun and was not confirmed.
    mutating func run(_ round: Int) async throws -> [Change] {
        let isAwaited = round > 0 && random.chance(70)
        let life = Int.random(in: 0...(isAwaited ? 150_000 : 80_000), using: &random)
        let program = try RunningProgram(in: folder, isAwaited: isAwaited)
        async let end = program.end(after: .microseconds(life))
        var touched: Set<Int64> = []
        var underWay: [Change] = []
        var enrolment: Task<Void, any Error>?
        if isAwaited, let door {
            touched.insert(door.number)
            let device = try await guest("Bob-\(round)", door.link, program)
            enrolment = Task { try await device.isReady() }
        }
        // A command at the same instant as a start can be the one that gets the records, and the program ends.
        if !isAwaited { try await Task.sleep(for: .microseconds(life / 2)) }
        while program.isRunning {
            let change = next(&touched)
            let outcome = try await program.command(change.command.words)
            if outcome.status == 0 {
                #expect(outcome.output.contains(change.command.answer), "round \(round): \(change)")
                confirmed.apply(change, number: outcome.invitation)
                count += 1
            } else {
                underWay.append(change)
                let isRefused = outcome.status != 1 || isAwaited && program.isRunning
                #expect(!isRefused, "round \(round): \(change), \(outcome.status), \(outcome.errors)")
            }
        }
        if let enrolment, let door {
            enrolment.cancel()
            let change = Change.enrol("Bob-\(round)", by: door.number)
            if case .success = await enrolment.result { confirmed.apply(change) } else { underWay.append(change) }
        }
        door = nil
        let wasKilled = await end
        #expect(wasKilled || !isAwaited, "round \(round): it ended by itself: \(program.log)")
        try kept.compare(program, "round \(round), killed")
        return underWay
    }

    /// What to try next: nothing twice in a round, so that what came to be can be told apart.
    private mutating func next(_ touched: inout Set<Int64>) -> Change {
        let taken = touched
        let open = confirmed.invitations.filter { $0.value.state == "open" && !taken.contains($0.key) }
        let members = confirmed.members.filter { !$0.value.isRemoved && !taken.contains($0.value.invitation) }
        let number = open.keys.sorted().randomElement(using: &random)
        let member = members.sorted { $0.key < $1.key }.randomElement(using: &random)
        let name = "Secret-\(random.next())"
        let draw = Int.random(in: 0..<100, using: &random)
        if draw < 15, confirmed.channels.count < 100 { return .channel(name) }
        if draw < 30, let number {
            touched.insert(number)
            return .withdraw(number)
        }
        if draw >= 60, let member {
            touched.insert(member.value.invitation)
            return draw < 85 ? .remove(member.key) : .removeInvited(member.value.invitation)
        }
        return .invite(uses: Int.random(in: 1...9, using: &random))
    }

    /// Starts the program again, and compares its lists with what was confirmed.
    mutating func check(_ underWay: [Change], _ place: String) async throws -> RunningProgram {
        let program = try RunningProgram(in: folder)
        try kept.compare(program, place)
        let listed = try await ProgramRecords.listed(by: program)
        for change in underWay { confirmed.settle(change, by: listed) }
        if listed.isCut, let oldest = listed.invitations.keys.min() {
            confirmed.invitations = confirmed.invitations.filter { $0.key >= oldest }
        }
        #expect(listed == confirmed, "\(place), under way: \(underWay)")
        confirmed = listed
        for case .channel(let name) in underWay {
            // Whether it was made, half made or not: there is a way to a link.
            let again = try await program.command(["invite", name, "--end-to-end", "--new-key"])
            #expect(again.status == 0, "\(place): \(again.errors)")
            confirmed.channels[name, default: 0] += 1
        }
        return program
    }

    /// A device comes by a new invitation, which lets in one more in the next round.
    mutating func admit(_ name: String, _ program: RunningProgram) async throws {
        let change = Change.invite(uses: 2)
        let outcome = try await program.command(change.command.words)
        let number = try #require(outcome.invitation, "\(outcome.errors)")
        let link = try InvitationLink(outcome.output)
        try await guest(name, link, program).isReady()
        confirmed.apply(change, number: number)
        confirmed.apply(.enrol(name, by: number))
        door = (number, link)
    }

    /// Devices come again: those that the lists have as removed are refused, the others let in.
    mutating func visit(_ program: RunningProgram) async throws {
        for (name, member) in confirmed.members.sorted(by: { $0.key < $1.key }).prefix(20) {
            let device = try await guest(name, program.standing, program)
            guard member.isRemoved else {
                try await device.isReady()
                continue
            }
            #expect(try await device.refusal().contains("removed"), "\(name)")
        }
    }

    private mutating func guest(
        _ name: String, _ invitation: InvitationLink, _ program: RunningProgram
    ) async throws -> Device {
        let identity = try identities[name] ?? Identity(generating: name)
        identities[name] = identity
        var link = invitation
        link.port = try program.standing.port
        return try await Device(name, link, identity: identity)
    }
}

extension RunningProgram {
    /// Kills it after `time`.
    fileprivate func end(after time: Duration) async -> Bool {
        try? await Task.sleep(for: time)
        return end()
    }
}
