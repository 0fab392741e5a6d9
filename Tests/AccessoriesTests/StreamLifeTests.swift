// The life of an accessory with a stream, in simulated time: every way to be opened, and every way to be lost.
import BlueZ
import MonotonicTime
import TestSupport
import Testing

@testable import Accessories

@Suite struct StreamLifeTests {
    @Test func aKnownDeviceIsOpenedAtOnceRecognisedBeforeAndTrustedAfter() {
        var stream = SimulatedStream()
        stream.start()
        let id = stream.device.id
        #expect(stream.commands == [.openStream(device: id, .serialPort), .trust(device: id)])
        #expect(stream.recognised.map(\.id) == ["words"])
        #expect(stream.link.isReady)
        #expect(stream.link.hearsNews)
        #expect(stream.link.problem == nil)
        #expect(stream.link.nextDeadline == nil)
    }

    @Test func bytesThatComeBeforeTheAnswerAreNews() {
        var stream = SimulatedStream()
        stream.holdsAnswers = true
        stream.start()
        #expect(!stream.link.isReady)
        #expect(stream.link.hearsNews)
        #expect(stream.link.isConnecting)
        #expect(stream.recognised.count == 1)
    }

    @Test func aDeviceThatWantsItIsToldToStart() {
        var stream = SimulatedStream(device: .classic("B01"))
        stream.start()
        #expect(stream.commands.contains(.writeStream(device: stream.device.id, .serialPort, [1])))
    }

    @Test func anUnknownDeviceIsSearchedForAndTheSearchRests() {
        var stream = SimulatedStream()
        stream.send(.radio(.on))
        #expect(stream.link.wantsDiscovery)
        #expect(stream.link.problem?.contains("pairing mode") == true)
        stream.advance(.seconds(31))
        #expect(!stream.link.wantsDiscovery)
        stream.advance(.seconds(15))
        #expect(stream.link.wantsDiscovery)
        stream.send(.device(stream.device))
        #expect(stream.link.isReady)
        #expect(!stream.link.wantsDiscovery)
    }

    @Test func aMissingRecordIsAskedForThreeTimesQuickly() {
        var stream = SimulatedStream()
        stream.answers = [.notSupported, .notSupported]
        stream.start()
        stream.advance(.seconds(2))
        #expect(stream.attempts == [.zero, .zero + .milliseconds(500), .zero + .seconds(1)])
        #expect(stream.link.isReady)
    }

    @Test func aRecordThatStaysAwayIsAskedForLessAndLess() {
        var stream = SimulatedStream()
        stream.answers = Array(repeating: .notSupported, count: 1000)
        stream.start()
        stream.advance(.seconds(3600))
        #expect((150...220).contains(stream.attempts.count), "\(stream.attempts.count)")
        #expect(stream.link.problem?.contains("shows no serial port") == true)
    }

    @Test func anAbsentDeviceIsPagedAtGrowingPausesUpToAMinute() {
        var stream = SimulatedStream()
        stream.isNear = false
        stream.start()
        stream.advance(.seconds(600))
        let pauses = zip(stream.attempts, stream.attempts.dropFirst()).map { $1 - $0 }
        #expect(pauses.prefix(6) == [.seconds(1), .seconds(2), .seconds(4), .seconds(8), .seconds(16), .seconds(32)])
        #expect(pauses.dropFirst(6).allSatisfy { $0 == .seconds(60) })
        #expect(stream.link.problem?.contains("switch it on") == true)
    }

    @Test func aDeviceThatConnectsByItselfIsOpenedAtOnce() {
        var stream = SimulatedStream()
        stream.isNear = false
        stream.start()
        stream.advance(.seconds(300))
        let count = stream.attempts.count
        stream.comeBack()
        #expect(stream.attempts.count == count + 1)
        #expect(stream.link.isReady)
    }

    @Test func aStreamThatTheDeviceOffersIsTakenAtOnce() {
        var stream = SimulatedStream()
        stream.isNear = false
        stream.start()
        stream.advance(.seconds(300))
        stream.isNear = true
        stream.send(.streamOffered(.handsFree))
        #expect(!stream.link.isReady)
        stream.send(.streamOffered(.serialPort))
        #expect(stream.link.isReady)
    }

    @Test func aDeviceWhoseLinkFlapsIsNotOpenedMoreThanOnceASecond() {
        var stream = SimulatedStream()
        stream.answers = Array(repeating: .notSupported, count: 10_000)
        stream.start()
        for _ in 0..<1000 {
            stream.comeBack()
            stream.advance(.milliseconds(5))
            stream.device.isConnected = false
            stream.send(.device(stream.device))
            stream.advance(.milliseconds(5))
        }
        #expect(stream.attempts.count <= 2 + 2 * 10, "\(stream.attempts.count) attempts in 10 s")
    }

    @Test func aHangUpReleasesAtOnceAndItIsOpenedAgain() {
        var stream = SimulatedStream()
        stream.start()
        stream.advance(.seconds(60))
        stream.hangUp()
        #expect(stream.lost == [.disconnected])
        #expect(!stream.link.isReady)
        #expect(!stream.link.hearsNews)
        stream.advance(.milliseconds(500))
        #expect(stream.link.isReady)
    }

    @Test func aDeviceThatHangsUpAtOnceEachTimeIsTriedLessAndLess() {
        var stream = SimulatedStream()
        stream.start()
        for _ in 0..<3600 {
            stream.hangUp()
            stream.advance(.seconds(1))
        }
        #expect(stream.attempts.count < 80, "\(stream.attempts.count) attempts in an hour")
    }

    @Test func aHangUpBeforeTheAnswerIsNoOpenStream() {
        var stream = SimulatedStream()
        stream.holdsAnswers = true
        stream.start()
        stream.send(.streamClosed(.serialPort))
        #expect(stream.lost == [.disconnected])
        #expect(!stream.link.hearsNews)
        stream.holdsAnswers = false
        stream.answer()
        #expect(!stream.link.isReady)
        stream.advance(.seconds(1))
        #expect(stream.link.isReady)
    }

    @Test func aLostLinkReleasesOnceAndClosesTheStream() {
        var stream = SimulatedStream()
        stream.start()
        // The link's end is told before the stream's.
        stream.device.isConnected = false
        stream.send(.device(stream.device))
        #expect(stream.lost == [.disconnected])
        #expect(stream.commands.last == .closeStream(device: stream.device.id, .serialPort))
        stream.send(.streamClosed(.serialPort))
        #expect(stream.lost == [.disconnected])
    }

    @Test(arguments: [RadioState.off, .noService])
    func theRadioOffReleasesAndItIsOpenedWhenItIsBack(radio: RadioState) {
        var stream = SimulatedStream()
        stream.start()
        stream.send(.radio(radio))
        #expect(stream.lost == [radio == .off ? .adapterOff : .bluetoothStopped])
        #expect(!stream.link.hearsNews)
        #expect(stream.link.nextDeadline == nil)
        stream.isOpen = false
        stream.device.isConnected = false
        stream.send(.device(stream.device))
        stream.send(.radio(.on))
        #expect(stream.link.isReady)
    }

    @Test func anAnswerFromBeforeTheRadioWentOffIsNotBelieved() {
        var stream = SimulatedStream()
        stream.holdsAnswers = true
        stream.start()
        stream.send(.radio(.off))
        stream.answer()
        #expect(!stream.link.isReady)
    }

    @Test func aRemovedDeviceReleasesAndIsSearchedFor() {
        var stream = SimulatedStream()
        stream.start()
        stream.send(.device(nil))
        #expect(stream.lost == [.removed])
        #expect(stream.link.wantsDiscovery)
        stream.send(.device(stream.device))
        #expect(stream.link.isReady)
    }

    @Test func anotherDeviceOfTheSameNameTakesOver() {
        var stream = SimulatedStream(AccessoryConfiguration(id: AccessoryID("mike"), name: NamePattern("APTT*")))
        stream.start()
        let former = stream.device
        stream.device = .classic("APTT17777", number: 2)
        stream.send(.device(stream.device))
        #expect(stream.lost == [.disconnected])
        #expect(stream.commands.contains(.closeStream(device: former.id, .serialPort)))
        #expect(stream.link.isReady)
        #expect(stream.link.device?.address == stream.device.address)
    }

    @Test func whatIsInProgressIsWaitedForButNotForEver() {
        var stream = SimulatedStream()
        stream.answers = Array(repeating: .inProgress, count: 3)
        stream.start()
        stream.advance(.seconds(4))
        #expect(stream.link.isReady)
        var stuck = SimulatedStream()
        stuck.answers = Array(repeating: .inProgress, count: 10_000)
        stuck.start()
        stuck.advance(.seconds(3600))
        #expect(stuck.attempts.count < 3600)
        #expect(!stuck.link.isReady)
    }

    // MARK: Pairing

    @Test func aProfileThatRequiresABondIsPairedFirst() {
        var stream = SimulatedStream(device: .classic("SAFE", isPaired: false))
        stream.start()
        let id = stream.device.id
        #expect(stream.commands.prefix(2) == [.pair(device: id), .openStream(device: id, .serialPort)])
        #expect(stream.link.isReady)
    }

    @Test func bondedOnlyPairsFirstAndAProfileThatForbidsItSaysSo() {
        var stream = SimulatedStream(
            AccessoryConfiguration(id: AccessoryID("mike"), address: "00:11:22:33:44:01", isBondedOnly: true),
            device: .classic("APTT12345", isPaired: false))
        stream.start()
        #expect(stream.commands.first == .pair(device: stream.device.id))
        #expect(stream.link.isReady)
        var forbidden = SimulatedStream(
            AccessoryConfiguration(id: AccessoryID("mike"), address: "00:11:22:33:44:01", isBondedOnly: true),
            device: .classic("OPEN", isPaired: false))
        forbidden.start()
        #expect(forbidden.commands.isEmpty)
        #expect(forbidden.link.problem?.contains("forbids") == true)
        forbidden.device.isPaired = true
        forbidden.send(.device(forbidden.device))
        #expect(forbidden.link.isReady)
    }

    @Test func aDeviceThatAsksForABondIsPairedThenAndKeysThatNoLongerFitAreTold() {
        var stream = SimulatedStream(device: .classic("APTT12345", isPaired: false))
        stream.answers = [.authentication]
        stream.start()
        #expect(
            stream.commands.prefix(2) == [
                .openStream(device: stream.device.id, .serialPort), .pair(device: stream.device.id),
            ])
        #expect(stream.link.isReady)
        var stale = SimulatedStream()
        stale.answers = [.authentication]
        stale.start()
        #expect(stale.link.problem?.contains("bluetoothctl remove") == true)
        #expect(!stale.commands.contains(.pair(device: stale.device.id)))
    }

    @Test func aDeviceThatAsksForBondsAgainAndAgainIsNotPairedInACircle() {
        var stream = SimulatedStream(device: .classic("APTT12345", isPaired: false))
        stream.holdsAnswers = true
        stream.tellsBonds = false
        stream.start()
        for _ in 0..<200 {
            let command = stream.commands.last!
            if case .openStream = command {
                stream.send(.completed(command, .authentication))
            } else if case .pair = command {
                // Paired, says BlueZ, but its property never says so.
                stream.send(.completed(command, nil))
            }
        }
        #expect(stream.commands.count < 10)
        #expect(stream.link.problem?.contains("asks for it again") == true)
    }

    // MARK: Hands-free

    @Test func aHeadsetIsConnectedAndThenItsCommandsAreOpened() {
        var stream = SimulatedStream(kind: .handsFree)
        stream.start()
        let id = stream.device.id
        #expect(stream.commands.prefix(2) == [.connect(device: id), .openStream(device: id, .handsFree)])
        #expect(stream.link.isReady)
    }

    @Test func withoutBlueALSAItSaysWhatToDoAndWorksOnceThatIsThere() {
        var stream = SimulatedStream(kind: .handsFree)
        stream.device.isConnected = true
        let words = BlueALSAError.notRunning.description
        stream.answers = Array(repeating: .other(words), count: 20)
        stream.start()
        #expect(stream.link.problem == words)
        #expect(words.contains("bluez-alsa-utils"))
        stream.advance(.seconds(600))
        #expect(stream.link.isReady)
        #expect(stream.link.problem == nil)
        let pauses = zip(stream.attempts, stream.attempts.dropFirst()).map { $1 - $0 }
        #expect(pauses.allSatisfy { $0 <= .seconds(8) })
    }

    // MARK: Profiles

    @Test func aProfileThatIsNotThereAndADeviceThatFitsNoneAreTold() {
        var missing = SimulatedStream(
            AccessoryConfiguration(id: AccessoryID("mike"), address: "00:11:22:33:44:01", profileID: "nope"))
        missing.start()
        #expect(missing.commands.isEmpty)
        #expect(missing.link.problem?.contains("\"nope\"") == true)
        var stranger = SimulatedStream(device: .classic("Speaker"))
        stranger.start()
        #expect(stranger.commands.isEmpty)
        #expect(stranger.link.problem?.contains("no profile") == true)
        stranger.device.name = "APTT1"
        stranger.send(.device(stranger.device))
        #expect(stranger.link.isReady)
    }

    @Test func aConfiguredProfileIsTakenWhateverTheName() {
        var stream = SimulatedStream(
            AccessoryConfiguration(id: AccessoryID("mike"), address: "00:11:22:33:44:01", profileID: "words"),
            device: .classic("whatever"))
        stream.start()
        #expect(stream.recognised.map(\.id) == ["words"])
        #expect(stream.link.isReady)
    }

    // MARK: Anything

    @Test func aRandomLifeEndsInAnOpenStreamWithoutStorms() {
        let seed = SeededGenerator.seed()
        var seeds = SeededGenerator(seed: seed)
        for _ in 0..<500 {
            let lifeSeed = seeds.next()
            var random = SeededGenerator(seed: lifeSeed)
            let kind: StreamKind = random.chance(50) ? .serialPort : .handsFree
            var stream = SimulatedStream(kind: kind)
            if random.chance(70) { stream.start() }
            for _ in 0..<200 {
                step(&stream, &random)
                #expect(!stream.link.isReady || stream.link.hearsNews, "seed \(lifeSeed)")
                if let deadline = stream.link.nextDeadline {
                    #expect(deadline >= stream.now || stream.link.isConnecting)
                }
            }
            let spent = stream.now - Instant.zero
            // Never more than one attempt a half second, and some for what happens at once.
            let most = Int(spent / .milliseconds(500)) + 200
            #expect(stream.attempts.count <= most, "seed \(lifeSeed): \(stream.attempts.count) in \(spent)")
            // Whatever happened: losing the service releases, and afterwards it works again.
            stream.holdsAnswers = false
            stream.answer()
            stream.answers = []
            let losses = stream.lost.count
            let wasReady = stream.link.isReady
            stream.send(.radio(.noService))
            if wasReady { #expect(stream.lost.count == losses + 1, "seed \(lifeSeed)") }
            #expect(!stream.link.isReady && !stream.link.hearsNews, "seed \(lifeSeed)")
            stream.isNear = true
            stream.isOpen = false
            stream.device = .classic(kind == .serialPort ? "APTT12345" : "BTH-PTT")
            stream.send(.device(stream.device))
            stream.send(.radio(.on))
            stream.advance(.seconds(61))
            #expect(stream.link.isReady, "seed \(lifeSeed) \(stream.link.phase) \(stream.link.problem ?? "")")
        }
    }

    private func step(_ stream: inout SimulatedStream, _ random: inout SeededGenerator) {
        switch Int.random(in: 0..<100, using: &random) {
        case 0..<10: stream.hangUp()
        case 10..<18: stream.goAway()
        case 18..<28: stream.comeBack()
        case 28..<32: stream.send(.streamClosed(stream.kind))
        case 32..<36: stream.send(.streamOffered(stream.kind))
        case 36..<39: stream.send(.device(nil))
        case 39..<46: stream.send(.device(stream.device))
        case 46..<49: stream.send(.radio(.off))
        case 49..<51: stream.send(.radio(.noService))
        case 51..<57: stream.send(.radio(.on))
        case 57..<62: stream.holdsAnswers = true
        case 62..<70:
            stream.holdsAnswers = false
            stream.answer()
        case 70..<80:
            let failures: [BluetoothFailure] = [
                .inProgress, .abortedLocally, .timedOut, .notReady, .notConnected, .notPermitted, .doesNotExist,
                .notSupported, .authentication, .serviceGone, .other("?"),
            ]
            stream.answers.append(failures.randomElement(using: &random)!)
        case 80..<82: stream.device.isPaired.toggle()
        default: stream.advance(.milliseconds(Int.random(in: 1...20_000, using: &random)))
        }
    }
}
