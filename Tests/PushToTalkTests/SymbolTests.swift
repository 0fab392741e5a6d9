// Apple's symbols with Apple's Swift names and types: what is wrong here does not compile, or has another raw value.
import PushToTalk
import Testing

@Suite struct SymbolTests {
    @Test(.shows("manager", "factory")) func `the manager has apples members`() {
        let _: any Sendable.Type = PTChannelManager.self
        let _: NSObject.Type = PTChannelManager.self
        let _: (any PTChannelManagerDelegate, any PTChannelRestorationDelegate) async throws -> PTChannelManager =
            PTChannelManager.channelManager(delegate:restorationDelegate:)
        let _:
            (
                any PTChannelManagerDelegate, any PTChannelRestorationDelegate,
                @escaping @Sendable (PTChannelManager?, (any Error)?) -> Void
            ) -> Void = PTChannelManager.channelManager(delegate:restorationDelegate:completionHandler:)
        let _: KeyPath<PTChannelManager, UUID?> = \.activeChannelUUID
        let _: (PTChannelManager) -> (UUID, PTChannelDescriptor) -> Void =
            PTChannelManager.requestJoinChannel(channelUUID:descriptor:)
        let _: (PTChannelManager) -> (UUID) -> Void = PTChannelManager.leaveChannel(channelUUID:)
        let _: (PTChannelManager) -> (UUID) -> Void = PTChannelManager.requestBeginTransmitting(channelUUID:)
        let _: (PTChannelManager) -> (UUID) -> Void = PTChannelManager.stopTransmitting(channelUUID:)
    }

    typealias Handler = (@Sendable ((any Error)?) -> Void)?

    @Test(
        .shows(
            "setChannelDescriptor", "setActiveRemoteParticipant", "setServiceStatus", "setTransmissionMode",
            "setAccessoryButtonEventsEnabled"))
    func `the settings have both forms`() {
        let _: (PTChannelManager) -> (PTChannelDescriptor, UUID) async throws -> Void =
            PTChannelManager.setChannelDescriptor(_:channelUUID:)
        let _: (PTChannelManager) -> (PTChannelDescriptor, UUID, Handler) -> Void =
            PTChannelManager.setChannelDescriptor(_:channelUUID:completionHandler:)
        let _: (PTChannelManager) -> (PTParticipant?, UUID) async throws -> Void =
            PTChannelManager.setActiveRemoteParticipant(_:channelUUID:)
        let _: (PTChannelManager) -> (PTParticipant?, UUID, Handler) -> Void =
            PTChannelManager.setActiveRemoteParticipant(_:channelUUID:completionHandler:)
        let _: (PTChannelManager) -> (PTServiceStatus, UUID) async throws -> Void =
            PTChannelManager.setServiceStatus(_:channelUUID:)
        let _: (PTChannelManager) -> (PTServiceStatus, UUID, Handler) -> Void =
            PTChannelManager.setServiceStatus(_:channelUUID:completionHandler:)
        let _: (PTChannelManager) -> (PTTransmissionMode, UUID) async throws -> Void =
            PTChannelManager.setTransmissionMode(_:channelUUID:)
        let _: (PTChannelManager) -> (PTTransmissionMode, UUID, Handler) -> Void =
            PTChannelManager.setTransmissionMode(_:channelUUID:completionHandler:)
        let _: (PTChannelManager) -> (Bool, UUID) async throws -> Void =
            PTChannelManager.setAccessoryButtonEventsEnabled(_:channelUUID:)
        let _: (PTChannelManager) -> (Bool, UUID, Handler) -> Void =
            PTChannelManager.setAccessoryButtonEventsEnabled(_:channelUUID:completionHandler:)
    }

    @Test(.shows("descriptor", "participant", "pushResult")) func `the values have apples members`() {
        let image = PTImage(named: "audio-radio")
        let descriptor = PTChannelDescriptor(name: "Site", image: image)
        #expect(descriptor.name == "Site" && descriptor.image == image)
        let participant = PTParticipant(name: "Ada", image: nil)
        #expect(participant.name == "Ada" && participant.image == nil)
        let _: PTPushResult = .leaveChannel
        let _: PTPushResult = .activeRemoteParticipant(participant)
    }

    /// Only the eight methods that Apple requires, and the restoration delegate's one.
    private final class Minimal: NSObject, PTChannelManagerDelegate, PTChannelRestorationDelegate {
        func channelManager(
            _ channelManager: PTChannelManager, didJoinChannel channelUUID: UUID, reason: PTChannelJoinReason
        ) {}
        func channelManager(
            _ channelManager: PTChannelManager, didLeaveChannel channelUUID: UUID, reason: PTChannelLeaveReason
        ) {}
        func channelManager(
            _ channelManager: PTChannelManager, channelUUID: UUID,
            didBeginTransmittingFrom source: PTChannelTransmitRequestSource
        ) {}
        func channelManager(
            _ channelManager: PTChannelManager, channelUUID: UUID,
            didEndTransmittingFrom source: PTChannelTransmitRequestSource
        ) {}
        func channelManager(_ channelManager: PTChannelManager, receivedEphemeralPushToken pushToken: Data) {}
        func incomingPushResult(
            channelManager: PTChannelManager, channelUUID: UUID, pushPayload: [String: Any]
        ) -> PTPushResult { .leaveChannel }
        func channelManager(_ channelManager: PTChannelManager, didActivate audioSession: PTAudioSession) {}
        func channelManager(_ channelManager: PTChannelManager, didDeactivate audioSession: PTAudioSession) {}
        func channelDescriptor(restoredChannelUUID channelUUID: UUID) -> PTChannelDescriptor {
            PTChannelDescriptor(name: "Site", image: nil)
        }
    }

    @Test(.shows("delegate.required", "delegate.optional", "delegate.serviceUpdate", "restorationDelegate"))
    func `eight methods make a delegate`() {
        let _: any PTChannelManagerDelegate = Minimal()
        let _: any PTChannelRestorationDelegate = Minimal()
        typealias Failure = (PTChannelManager, UUID, any Error) -> Void
        let _: Failure = Minimal().channelManager(_:failedToJoinChannel:error:)
        let _: Failure = Minimal().channelManager(_:failedToLeaveChannel:error:)
        let _: Failure = Minimal().channelManager(_:failedToBeginTransmittingInChannel:error:)
        let _: Failure = Minimal().channelManager(_:failedToStopTransmittingInChannel:error:)
        let _: (PTChannelManager, UUID, [String: Any], Bool, Int, @escaping @Sendable () -> Void) -> Void =
            Minimal().incomingServiceUpdatePush(
                channelManager:channelUUID:pushPayload:isHighPriority:remainingHighPriorityBudget:completion:)
        let _: (PTChannelManager, UUID, [String: Any], Bool, Int) async -> Void =
            Minimal().incomingServiceUpdatePush(
                channelManager:channelUUID:pushPayload:isHighPriority:remainingHighPriorityBudget:)
    }

    @Test(
        .shows(
            "PTTransmissionMode", "PTServiceStatus", "PTChannelJoinReason", "PTChannelLeaveReason",
            "PTChannelTransmitRequestSource"))
    func `the enumerations have apples raw values`() {
        #expect([PTTransmissionMode.fullDuplex, .halfDuplex, .listenOnly].map(\.rawValue) == [0, 1, 2])
        #expect([PTServiceStatus.ready, .connecting, .unavailable].map(\.rawValue) == [0, 1, 2])
        #expect([PTChannelJoinReason.developerRequest, .channelRestoration].map(\.rawValue) == [0, 1])
        #expect(
            [PTChannelLeaveReason.unknown, .userRequest, .developerRequest, .systemPolicy].map(\.rawValue)
                == [0, 1, 2, 3])
        #expect(
            [PTChannelTransmitRequestSource.unknown, .userRequest, .developerRequest, .handsfreeButton].map(\.rawValue)
                == [0, 1, 2, 3])
    }

    @Test(.shows("PTInstantiationError")) func `instantiation errors have apples codes`() {
        let codes = [
            PTInstantiationError.unknown, PTInstantiationError.invalidPlatform,
            PTInstantiationError.missingBackgroundMode, PTInstantiationError.missingPushServerEnvironment,
            PTInstantiationError.missingEntitlement, PTInstantiationError.instantiationAlreadyInProgress,
        ]
        #expect(codes.map(\.rawValue) == Array(0...5))
        #expect(PTInstantiationError.errorDomain == PTInstantiationErrorDomain)
        let error: any Error = PTInstantiationError(.missingEntitlement, explanation: "for a test")
        #expect((error as NSError).code == 4)
        #expect((error as NSError).domain == "PTInstantiationErrorDomain")
        #expect(error.localizedDescription == "for a test")
        do { throw error } catch PTInstantiationError.missingEntitlement {} catch { Issue.record("not caught") }
    }

    @Test(.shows("PTChannelError")) func `channel errors have apples codes`() {
        let codes = [
            PTChannelError.unknown, PTChannelError.channelNotFound, PTChannelError.channelLimitReached,
            PTChannelError.callActive, PTChannelError.transmissionInProgress, PTChannelError.transmissionNotFound,
            PTChannelError.appNotForeground, PTChannelError.deviceManagementRestriction,
            PTChannelError.screenTimeRestriction, PTChannelError.transmissionNotAllowed,
        ]
        #expect(codes.map(\.rawValue) == Array(0...9))
        #expect(PTChannelError.errorDomain == PTChannelErrorDomain)
        let error: any Error = PTChannelError(.callActive, explanation: "for a test")
        #expect((error as NSError).code == 3)
        #expect((error as NSError).domain == "PTChannelErrorDomain")
        #expect(error.localizedDescription == "for a test")
        do { throw error } catch PTChannelError.callActive {} catch { Issue.record("not caught") }
    }
}
