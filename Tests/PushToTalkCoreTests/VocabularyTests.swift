// Apple's names, raw values and codes.

import FoundationEssentials
import PushToTalkCore
import Testing

@Suite struct VocabularyTests {
    @Test func `enumerations have apples raw values`() {
        #expect(PTTransmissionMode.allCases.map(\.rawValue) == [0, 1, 2])
        #expect(PTTransmissionMode.allCases == [.fullDuplex, .halfDuplex, .listenOnly])
        #expect(PTServiceStatus.allCases.map(\.rawValue) == [0, 1, 2])
        #expect(PTServiceStatus.allCases == [.ready, .connecting, .unavailable])
        #expect(PTChannelJoinReason.allCases.map(\.rawValue) == [0, 1])
        #expect(PTChannelJoinReason.allCases == [.developerRequest, .channelRestoration])
        #expect(PTChannelLeaveReason.allCases.map(\.rawValue) == [0, 1, 2, 3])
        #expect(PTChannelLeaveReason.allCases == [.unknown, .userRequest, .developerRequest, .systemPolicy])
        #expect(PTChannelTransmitRequestSource.allCases.map(\.rawValue) == [0, 1, 2, 3])
        #expect(
            PTChannelTransmitRequestSource.allCases == [.unknown, .userRequest, .developerRequest, .handsfreeButton])
    }

    @Test func `errors have apples codes and domains`() {
        let channel: [PTChannelError.Code] = [
            PTChannelError.unknown, PTChannelError.channelNotFound, PTChannelError.channelLimitReached,
            PTChannelError.callActive, PTChannelError.transmissionInProgress, PTChannelError.transmissionNotFound,
            PTChannelError.appNotForeground, PTChannelError.deviceManagementRestriction,
            PTChannelError.screenTimeRestriction, PTChannelError.transmissionNotAllowed,
        ]
        #expect(channel == PTChannelError.Code.allCases)
        #expect(channel.map(\.rawValue) == Array(0...9))
        let instantiation: [PTInstantiationError.Code] = [
            PTInstantiationError.unknown, PTInstantiationError.invalidPlatform,
            PTInstantiationError.missingBackgroundMode, PTInstantiationError.missingPushServerEnvironment,
            PTInstantiationError.missingEntitlement, PTInstantiationError.instantiationAlreadyInProgress,
        ]
        #expect(instantiation == PTInstantiationError.Code.allCases)
        #expect(instantiation.map(\.rawValue) == Array(0...5))
        #expect(PTChannelError.errorDomain == "PTChannelErrorDomain")
        #expect(PTInstantiationError.errorDomain == "PTInstantiationErrorDomain")
    }

    @Test func `an error is caught by its code`() {
        func name(_ error: any Error) -> String {
            do { throw error } catch PTChannelError.callActive {
                return "call"
            } catch PTInstantiationError.invalidPlatform {
                return "platform"
            } catch {
                return "other"
            }
        }
        #expect(name(PTChannelError(.callActive)) == "call")
        #expect(name(PTChannelError(.channelNotFound)) == "other")
        #expect(name(PTInstantiationError(.invalidPlatform)) == "platform")
        #expect(name(PTInstantiationError(.unknown)) == "other")
    }

    @Test func `every error explains itself`() {
        for code in PTChannelError.Code.allCases { #expect(!PTChannelError(code).explanation.isEmpty) }
        for code in PTInstantiationError.Code.allCases { #expect(!PTInstantiationError(code).explanation.isEmpty) }
        #expect(PTChannelError(.unknown, explanation: "no device").description == "unknown: no device")
    }

    @Test func `an image is PNG or JPEG data or a themed icon`() throws {
        let png: [UInt8] = [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A, 0]
        let jpeg: [UInt8] = [0xFF, 0xD8, 0xFF, 0xE0]
        #expect(PTImage(data: png)?.content == .png(png))
        #expect(PTImage(data: Data(jpeg))?.content == .jpeg(jpeg))
        #expect(PTImage(named: "audio-input-microphone")?.content == .themedIcon("audio-input-microphone"))
        #expect(throws: PTImage.Invalid.unknownFormat) { try PTImage(validating: [UInt8]()) }
        #expect(throws: PTImage.Invalid.unknownFormat) { try PTImage(validating: Array(png.dropLast(2))) }
        let large = png + [UInt8](repeating: 0, count: PTImage.byteCountMax)
        #expect(throws: PTImage.Invalid.tooLarge(byteCount: large.count)) { try PTImage(validating: large) }
        for name in ["", "../../etc/passwd", ".hidden", "icône", "a b", String(repeating: "a", count: 129)] {
            #expect(throws: PTImage.Invalid.malformedIconName) { try PTImage(validatingIconName: name) }
            #expect(PTImage(named: name) == nil)
        }
    }
}
